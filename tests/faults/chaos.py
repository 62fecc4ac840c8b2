"""All roles under load on servers of their own while a seeded plan breaks one thing after the other; then the verdict.

`python -m tests.faults.chaos --seconds 60 --seed 1` runs it by hand; `./dev bench chaos` and a test call `run`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.faults import verify
from tests.faults.arena import HEARTBEAT_SECONDS, LEASE_SECONDS, Arena, arena
from tests.faults.inflict import Inflicted, Inflictor
from tests.faults.load import Load
from tests.faults.plan import PAUSE, Fault, Kind, make_plan

ROLES: Final = ("web", "publisher", "publisher", "beat", "sweeper", "sweeper", "events", "worker", "worker", "worker")
SLOTS: Final = 10  # in each worker
DRAIN_SECONDS: Final = 90.0
ORPHAN_SECONDS: Final = 60.0
WAKE_SECONDS: Final = HEARTBEAT_SECONDS  # four looks at its leases, for a process that was stopped and goes on
POLL_SECONDS: Final = 0.2

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a kind of fault did: how often, and the seconds from each one's end to the next job's end."""

    fault: str
    seconds: tuple[float, ...]


@dataclass(slots=True)
class Verdict:
    """The outcome of a run. `refused` are posts without a receipt, `refused_unexplained` those that came while
    PostgreSQL and the web role were untouched; `slowest_post` and `drained` in seconds."""

    seconds: float
    seed: int
    broker: str
    faults: int
    accepted: int
    refused: int
    refused_unexplained: int
    slowest_post: float
    drained: float
    skewed: bool  # one worker's clock was wrong
    findings: verify.Findings
    recoveries: list[Recovery] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every rule held."""
        return not self.findings.broken

    def document(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return asdict(self)

    def table(self) -> str:
        """For people."""
        found = self.findings
        rows = [("fault", "count", "p50 s", "max s")]
        for one in self.recoveries:
            middle = sorted(one.seconds)[(len(one.seconds) - 1) // 2]
            rows.append((one.fault, str(len(one.seconds)), f"{middle:.2f}", f"{max(one.seconds):.2f}"))
        wide = max(len(row[0]) for row in rows)
        lines = [f"  {name:<{wide}}  {count:>5}  {p50:>7}  {most:>7}" for name, count, p50, most in rows]
        lines += [
            f"{self.faults} faults, {self.accepted:,} jobs accepted on {self.broker} in {self.seconds:.0f} s (seed "
            f"{self.seed}), drained in {self.drained:.1f} s; {self.refused} posts refused, {self.refused_unexplained} "
            f"of them without PostgreSQL or web being down; slowest receipt {self.slowest_post:.2f} s; "
            f"{'one worker' if self.skewed else 'nobody'} had a wrong clock",
            f"lost {len(found.lost)}, double-finished {len(found.double_finished)}, stuck {len(found.stuck)}, live "
            f"twice {len(found.overlapping)} (fenced zombies: {found.fenced_overlaps}), posts repeated "
            f"{len(found.repeated_posts)}, over max attempts {len(found.over_max)}, broken trails "
            f"{len(found.trail_broken)}, orphans {len(found.orphans)}",
            "ends: " + ", ".join(f"{name} {count:,}" for name, count in found.states.most_common()),
        ]
        lines += [f"  {rule}: {example}" for rule, examples in found.broken.items() for example in examples]
        return "\n".join(lines)


def run(
    seconds: float,
    *,
    seed: int,
    rate: float,
    folder: Path,
    amqp_url: str = "",
    pause: tuple[float, float] = PAUSE,
    say: Say = print,
) -> Verdict:
    """Break things for `seconds` while `rate` jobs a second come in. RabbitMQ is the broker where `amqp_url` names one,
    else Redis. Raises ServerFailed, NotReady."""
    with arena(ROLES, folder, amqp_url=amqp_url, skewed=True, WORKER_SLOTS=str(SLOTS)) as ground:
        inflictor = Inflictor(
            ground.pool,
            ground.servers,
            broker=ground.broker,
            broker_road=ground.broker_road,
            database_road=ground.database_road,
        )
        plan = make_plan(seconds, seed=seed, kinds=list(Kind), lease_seconds=LEASE_SECONDS, pause=pause)
        say(f"{len(plan)} faults in {seconds:.0f} s, {rate:g} jobs a second")
        with Load(
            ground.port, ground.key, ground.target.address, rate=rate, seed=seed, lease_seconds=LEASE_SECONDS
        ) as load:
            _carry_out(plan, inflictor, seconds, say)
        drained = _drain(ground)
        say(f"drained in {drained:.1f} s")
        evidence, findings = _judged(ground, load, inflictor.inflicted)
    return Verdict(
        seconds=seconds,
        seed=seed,
        broker="RabbitMQ" if amqp_url else "Redis",
        faults=len(inflictor.inflicted),
        accepted=len(load.accepted),
        refused=len(load.refusals),
        refused_unexplained=_unexplained(load, inflictor.inflicted),
        slowest_post=load.slowest,
        drained=drained,
        skewed=ground.skewed,
        findings=findings,
        recoveries=recoveries(inflictor.inflicted, evidence.ends),
    )


def _carry_out(plan: Sequence[Fault], inflictor: Inflictor, seconds: float, say: Say) -> None:
    began = time.monotonic()
    for number, fault in enumerate(plan, 1):
        time.sleep(max(0.0, began + fault.begin - time.monotonic()))
        if time.monotonic() - began > seconds:
            return  # servers that were slow to come back took the time of the last ones
        inflictor.inflict(fault)
        say(f"{time.monotonic() - began:6.1f} s  {number} of {len(plan)}: {fault.kind.value}")
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def _drain(ground: Arena) -> float:
    """Seconds until every job had ended and was told of, at most DRAIN_SECONDS."""
    began = time.monotonic()
    while verify.unfinished(ground.settings["DATABASE_URL"]) and time.monotonic() - began < DRAIN_SECONDS:
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def _judged(ground: Arena, load: Load, inflicted: Sequence[Inflicted]) -> tuple[verify.Evidence, verify.Findings]:
    evidence, bucket = verify.Evidence(ground.settings), verify.Bucket(ground.settings)
    deadline = time.monotonic() + ORPHAN_SECONDS
    while verify.orphans(evidence, bucket.list()) and time.monotonic() < deadline:
        time.sleep(1.0)
    findings = verify.judge(evidence, load.accepted, bucket)
    frozen = [
        verify.Frozen(one.pid, one.begin, one.end)
        for one in inflicted
        if one.kind is Kind.ZOMBIE and one.pid is not None
    ]
    verify.judge_visits(
        ground.target.visits, evidence, load.accepted, frozen, wake_seconds=WAKE_SECONDS, found=findings
    )
    return evidence, findings


def _unexplained(load: Load, inflicted: Sequence[Inflicted]) -> int:
    """Posts refused although neither the web role nor its database had anything to suffer from: not from the begin of
    such a fault to a second after the first receipt that followed it."""
    excuses = (Kind.RESTART_POSTGRES, Kind.CRASH_POSTGRES, Kind.KILL_WEB, Kind.KILL_ANY)
    times = [
        (one.begin, next((at for at in load.receipts if at > one.end), float("inf")) + 1.0)
        for one in inflicted
        if one.kind in excuses
    ]
    return sum(not any(begin <= refusal.at <= end for begin, end in times) for refusal in load.refusals)


def recoveries(inflicted: Sequence[Inflicted], ends: Sequence[float]) -> list[Recovery]:
    """Per kind of fault, the seconds from the end of each to the next end of a job; `ends` in order."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for one in inflicted:
        following = next((end for end in ends if end > one.end), None)
        if following is not None:
            seconds[one.kind.value].append(following - one.end)
    return [Recovery(kind.value, tuple(seconds[kind.value])) for kind in Kind if seconds[kind.value]]


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 when a rule was broken."""
    parser = argparse.ArgumentParser("python -m tests.faults.chaos", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=12.0, help="jobs a second")
    parser.add_argument("--folder", type=Path, help="keeps the data and the logs there")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="chaos-") as temporary:
        verdict = run(
            options.seconds,
            seed=options.seed,
            rate=options.rate,
            folder=options.folder or Path(temporary),
            amqp_url=os.environ.get("TEST_AMQP_URL", ""),
        )
    print(verdict.table())
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How soon a receiver hears of an ended job while another one hangs, and whether anything is lost when the processes
that tell are killed."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import broker
from bench.backlog import START_SECONDS, UNLIMITED, Backlog
from bench.catalogue import BenchFailed
from bench.children import Children
from bench.console import Progress
from bench.figures import Figure, percentile
from bench.receiver import Receiver
from jobs.models import Job
from webhooks import endpoints
from webhooks.models import Endpoint

P95_BAR = 2000.0  # ms
HANGING_SECONDS = 60.0
TOLD_SECONDS = 120.0
KILL_PAUSE_SECONDS = (1.0, 4.0)
KILLED = ("events", "publisher")  # in turn


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """First the quick receiver beside one that hangs, then the kills."""
    with (
        broker.reserved(os.environ["BROKER_URL"]),
        Backlog() as backlog,
        Receiver() as quick,
        Receiver(HANGING_SECONDS) as hanging,
        Children(folder) as children,
    ):
        target = children.target()
        allowed = {
            "EGRESS_ALLOW": ",".join((target, quick.address, hanging.address)),
            "SWEEP_SECONDS": "5",
            **UNLIMITED,
        }
        # Beat and the sweeper find the ends whose message died with a killed process.
        for role in ("publisher", "worker", "events", "beat", "sweeper"):
            children.role(role, **allowed)
        page = f"http://{target}/bytes/100"
        backlog.finish(children, backlog.submit(page, 5), seconds=START_SECONDS)
        stalled, _ = _register(backlog, hanging)
        _register(backlog, quick)
        delays = _steady(children, backlog, page, quick, sizes)
        endpoints.delete(stalled)
        jobs, kills = _killed(children, backlog, page, quick, sizes, allowed)
        seen = quick.times_seen()
        told = {receipt.job for receipt in quick.receipts}
        if quick.refused or hanging.refused:
            raise BenchFailed("A receiver was sent what it could not verify.")
        return [
            Figure("end of job to receipt beside one that hangs, p50", percentile(delays, 0.5), "ms"),
            Figure("end of job to receipt beside one that hangs, p95", percentile(delays, 0.95), "ms", bar=P95_BAR),
            Figure("tries that hung meanwhile", float(len(hanging.receipts)), "tries"),
            Figure("processes killed", float(kills), "kills"),
            Figure(
                "ended jobs told of in spite of it",
                100.0 * sum(str(job) in told for job in jobs) / len(jobs),
                "%",
                bar=100.0,
                more_is_better=True,
            ),
            Figure("webhook-ids a job", len(seen) / len(told), "ids", bar=1.0),
            Figure("requests an id", seen.total() / len(seen), "requests"),
        ]


def _register(backlog: Backlog, receiver: Receiver) -> tuple[Endpoint, str]:
    endpoint, receiver.secret = endpoints.register(backlog.tenant, {"url": receiver.url})
    return endpoint, receiver.secret


def _steady(
    children: Children, backlog: Backlog, page: str, quick: Receiver, sizes: Mapping[str, int]
) -> Sequence[float]:
    """Milliseconds from the end of each job to its receipt; both clocks are this machine's."""
    ids: list[uuid.UUID] = []
    progress = Progress("jobs posted", sizes["rate"] * sizes["seconds"])
    started = time.monotonic()
    for number in range(sizes["rate"] * sizes["seconds"]):
        time.sleep(max(0.0, started + number / sizes["rate"] - time.monotonic()))
        ids += backlog.submit(page, 1)
        progress.show(number + 1)
    backlog.end(children, ids, seconds=START_SECONDS)
    _wait_until_told(children, quick, ids)
    first = {receipt.job: receipt.at for receipt in reversed(quick.receipts)}
    ends = Job.objects.filter(id__in=ids).values_list("id", "finished_at")
    return [(first[str(job)] - end.timestamp()) * 1000 for job, end in ends if end is not None]


def _killed(
    children: Children, backlog: Backlog, page: str, quick: Receiver, sizes: Mapping[str, int], allowed: dict[str, str]
) -> tuple[list[uuid.UUID], int]:
    """The jobs that ended while processes were killed, and how many of those were."""
    ids: list[uuid.UUID] = []
    for number in range(sizes["kills"]):
        ids += backlog.submit(page, sizes["jobs"] // sizes["kills"])
        time.sleep(random.uniform(*KILL_PAUSE_SECONDS))
        _kill(children, KILLED[number % len(KILLED)], allowed)
    backlog.end(children, ids, seconds=TOLD_SECONDS)
    _wait_until_told(children, quick, ids)
    return ids, sizes["kills"]


def _kill(children: Children, name: str, allowed: dict[str, str]) -> None:
    role = next(entry for entry in children.roles if entry[0] == name)
    children.roles.remove(role)
    role[1].kill()
    role[1].wait()
    children.role(name, **allowed)


def _wait_until_told(children: Children, quick: Receiver, ids: Sequence[uuid.UUID]) -> None:
    wanted = {str(job) for job in ids}
    children.wait_until(
        lambda: wanted <= {receipt.job for receipt in quick.receipts},
        seconds=TOLD_SECONDS,
        what="the quick receiver was told of every job",
    )

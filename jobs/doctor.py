"""What is wrong with the service and what to do about it, in plain words.

A judgement is a value: `examine` knows no database and no clock, only what the probes and the vitals found.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from core.health import Report
from jobs import patience
from jobs.vitals import Vitals

OLD_TRANSACTION_SECONDS: Final = 30.0
INCIDENT: Final = 100  # dead letters of one host with one error in a day
CONNECTIONS_USED: Final = 0.8
_NAMED: Final = 5  # of one kind of finding
_SWEEPS_MISSED: Final = 3  # in a row, and nobody sweeps


class Level(StrEnum):
    """How bad it is; the worst come first."""

    CRITICAL = "critical"  # jobs are not accepted, not started or not ended
    WARNING = "warning"  # it goes on, slower or with failures


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: what was seen, why it matters or comes about, and what to do."""

    level: Level
    what: str
    why: str
    do: str


_PARTS: Final[dict[str, tuple[Level, str, str]]] = {
    "database": (
        Level.CRITICAL,
        "Nothing goes on without it: no job is accepted, read, started or ended.",
        "See that PostgreSQL runs where DATABASE_URL points and has connections left. All roles recover by themselves.",
    ),
    "broker": (
        Level.CRITICAL,
        "Jobs are accepted and kept, but no new one starts and no finish event is sent.",
        "See that the server runs where BROKER_URL points. Publisher and workers recover by themselves.",
    ),
    "cache": (
        Level.WARNING,
        "Reads go to the database instead: right, but slower.",
        "See that the server runs where REDIS_URL points. Nothing needs a restart.",
    ),
    "storage": (
        Level.CRITICAL,
        "Responses cannot be stored: attempts end as storage_unavailable and are tried again until none is left.",
        "See that the storage runs where S3_ENDPOINT_URL points and has the bucket S3_BUCKET. Afterwards redrive what "
        "failed meanwhile: `manage.py redrive --code storage_unavailable`.",
    ),
}


ELSEWHERE: Final[list[Callable[[], Iterable[Finding]]]] = []
"""What apps add that are not known here; each asks the database itself, and raises its Error."""


def examine(report: Report, vitals: Vitals | None, elsewhere: Iterable[Finding] = ()) -> list[Finding]:
    """All that is wrong, the worst first; `vitals` is None where the database did not tell them. `elsewhere` is what
    other apps found."""
    found = [*_silent_parts(report), *elsewhere]
    if vitals is not None:
        found += [finding for judge in _JUDGES if (finding := judge(vitals)) is not None]
        found += [*_forgotten_pauses(vitals), *_full_queues(vitals)]
    elif report.findings["database"].error is None:
        found.append(_MUTE)
    return sorted(found, key=lambda finding: list(Level).index(finding.level))


_MUTE: Final = Finding(
    Level.CRITICAL,
    "The database answers, but does not tell how the queue is within a few seconds.",
    "It is overloaded, or something holds a lock on the queue's tables.",
    "Look at what it is doing: `SELECT pid, state, wait_event, query FROM pg_stat_activity`.",
)


def _silent_parts(report: Report) -> Iterator[Finding]:
    for name, part in report.findings.items():
        if part.error is not None:
            level, why, do = _PARTS[name]
            yield Finding(level, f"The {name} does not answer ({part.error}).", why, do)


def _no_workers(vitals: Vitals) -> Finding | None:
    if vitals.pool.processes:
        return None
    seen = vitals.pool.last_seen_age
    return Finding(
        Level.CRITICAL,
        "No worker process is alive.",
        "None has ever been heard of." if seen is None else f"The last heartbeat came {duration(seen)} ago.",
        "Start the worker role; if it runs, its log says why it cannot reach the database or the broker.",
    )


def _no_publisher(vitals: Vitals) -> Finding | None:
    if vitals.server.publisher_leads:
        return None
    return Finding(
        Level.CRITICAL,
        "No publisher leads.",
        "Without one no job is handed to the workers and no finish event is sent.",
        "Start the publisher role (`manage.py publish`). If it was just restarted, look again in 10 seconds.",
    )


def _past_lease(vitals: Vitals) -> Finding | None:
    queue = vitals.queue
    if queue.oldest_expired_lease_age <= patience.late_sweep():
        return None
    return Finding(
        Level.CRITICAL,
        f"{_jobs(queue.past_lease)} marked running past the lease, the oldest for "
        f"{duration(queue.oldest_expired_lease_age)}.",
        "Their workers are gone, and no sweep took the jobs back.",
        "Run `manage.py sweep --once` to take them back now, then see to beat and the sweeper role. If some stay, "
        "its log names those that the database refuses to move.",
    )


def _no_sweeps(vitals: Vitals) -> Finding | None:
    """Known by what a sweep would have cleared away, whatever the reason that none did."""
    queue, late = vitals.queue, _SWEEPS_MISSED * patience.late_sweep()
    signs = [
        sign
        for sign, seen in (
            ("leases that ran out", queue.oldest_expired_lease_age > late),
            ("lost messages", queue.oldest_message_age > patience.lost_message_grace() + late),
            ("worker processes long gone", vitals.pool.overdue > 0),
        )
        if seen
    ]
    if not signs:
        return None
    return Finding(
        Level.CRITICAL,
        "The sweeper does not sweep.",
        f"It left {', '.join(signs)} behind. What is lost with a worker or by the broker does not come back.",
        "See that beat runs (once) and that a worker consumes the queue `sweeper`; `manage.py sweep --once` helps out.",
    )


def _past_promise(vitals: Vitals) -> Finding | None:
    queue, pool = vitals.queue, vitals.pool
    if not queue.past_promise:
        return None
    what = (
        f"{_jobs(queue.past_promise)} waiting for more than {duration(patience.PROMISE_SECONDS)} to start, the oldest "
        f"for {duration(queue.oldest_age)}."
    )
    if pool.processes and pool.busy >= pool.slots:
        why, do = f"All {pool.slots:,} slots are busy: there is more work than the pool can do.", "Start more workers."
    elif queue.published and pool.processes:
        why = f"{_jobs(queue.published)} in the broker unclaimed although workers have free slots."
        do = "Look into the workers' log; restart those that claim nothing."
    else:
        why = "They are not handed to the workers."
        do = "See to the publisher, the broker and the workers, in this order; other findings may name which it is."
    return Finding(Level.WARNING, what, why, do)


def _unclaimed(vitals: Vitals) -> Finding | None:
    queue = vitals.queue
    if not queue.unclaimed:
        return None
    return Finding(
        Level.WARNING,
        f"{_jobs(queue.unclaimed)} published and unclaimed for more than {duration(patience.lost_message_grace())}.",
        "The broker lost the messages, or the workers do not take them: they hold off while the storage is away, which "
        "another finding then says. The next sweep publishes the jobs again.",
        "If it stays, see that workers consume jobs.high, jobs.normal and jobs.low, and what the broker's queues hold.",
    )


def _finish_events(vitals: Vitals) -> Finding | None:
    queue = vitals.queue
    if queue.oldest_finish_event_age <= patience.PROMISE_SECONDS:
        return None
    return Finding(
        Level.WARNING,
        f"The ends of {_jobs(queue.finish_events, '')} were not told yet, the oldest for "
        f"{duration(queue.oldest_finish_event_age)}.",
        "Finish events are sent by the publisher through the broker. Until then cached answers may be out of date.",
        "See to the publisher and the broker.",
    )


def _old_transaction(vitals: Vitals) -> Finding | None:
    server = vitals.server
    if server.oldest_transaction_age <= OLD_TRANSACTION_SECONDS:
        return None
    return Finding(
        Level.WARNING,
        f"A transaction has been open for {duration(server.oldest_transaction_age)}: {server.oldest_transaction}.",
        "While it is open no dead row can be cleaned up, and the queue gets slower by the minute.",
        "Find out whose it is and end it: `SELECT pg_terminate_backend(PROCESS)`, or for a prepared one "
        "`ROLLBACK PREPARED`.",
    )


def _crash_loops(vitals: Vitals) -> Finding | None:
    count = vitals.failures.crash_loops
    if not count:
        return None
    return Finding(
        Level.WARNING,
        f"{_jobs(count, '')} failed as crash_loop within a day.",
        "Each was lost together with its worker three times: the job may kill its worker, or workers die of something "
        "else, as too little memory.",
        "Look at `manage.py dead_letters --code crash_loop` and the workers' logs; once it is mended, "
        "`manage.py redrive --code crash_loop`.",
    )


def _incident(vitals: Vitals) -> Finding | None:
    failures = vitals.failures
    if failures.biggest_count < INCIDENT:
        return None
    named = f"--host {failures.biggest_host} --code {failures.biggest_code}"
    return Finding(
        Level.WARNING,
        f"{_jobs(failures.biggest_count, '')} for {failures.biggest_host} failed as {failures.biggest_code} "
        f"within a day.",
        "So many failures of one kind at one host have one cause: one incident, not so many.",
        f"Look at `manage.py dead_letters {named}`; once it is mended, `manage.py redrive {named}`.",
    )


def _connections(vitals: Vitals) -> Finding | None:
    server = vitals.server
    if server.connections < CONNECTIONS_USED * server.max_connections:
        return None
    return Finding(
        Level.WARNING,
        f"{server.connections:,} of {server.max_connections:,} connections of the database server are in use.",
        "When none is left, roles and callers are turned away.",
        "Raise max_connections, run fewer processes, or put a connection pooler in between.",
    )


def _idle_transactions(vitals: Vitals) -> Finding | None:
    if vitals.server.ends_idle_transactions:
        return None
    return Finding(
        Level.WARNING,
        "The database does not end transactions that a stuck process left open.",
        "The service asks for it when it connects; a connection pooler in between may have dropped that.",
        "Set it in the server: `ALTER DATABASE ... SET idle_in_transaction_session_timeout = '30s'`.",
    )


def _forgotten_pauses(vitals: Vitals) -> Iterator[Finding]:
    old = [pause for pause in vitals.held.pauses if pause.oldest_age > patience.PAUSE_SECONDS]
    for pause in old[:_NAMED]:
        yield Finding(
            Level.WARNING,
            f"The {pause.of} {pause.name} is paused and has {_jobs(pause.jobs, '')} waiting, the oldest for "
            f"{duration(pause.oldest_age)}.",
            "An operator paused it; nothing of it starts until one resumes it. It may have been forgotten.",
            f"If the reason is gone, resume it: `manage.py set_{pause.of} {shlex.quote(pause.name)} --resume`.",
        )


def _full_queues(vitals: Vitals) -> Iterator[Finding]:
    for full in vitals.full_queues[:_NAMED]:
        yield Finding(
            Level.WARNING,
            f"The tenant {full.tenant} has as many jobs queued as it may ({full.max_queued:,}).",
            "It submits faster than its jobs run; what it submits now is refused as too_many_queued.",
            "Let it wait, or allow more: `manage.py set_tenant "
            f"{shlex.quote(full.tenant)} --max-queued N`. If it is paused or at its max_running, that is why.",
        )


_JUDGES: Final[tuple[Callable[[Vitals], Finding | None], ...]] = (
    _no_workers,
    _no_publisher,
    _past_lease,
    _no_sweeps,
    _past_promise,
    _unclaimed,
    _finish_events,
    _old_transaction,
    _crash_loops,
    _incident,
    _connections,
    _idle_transactions,
)


def _jobs(count: int, verb: str = "are") -> str:
    """`1 job is`, `1,200 jobs are`; without a verb `1 job`, `1,200 jobs`."""
    noun, verb = ("1 job", verb and "is") if count == 1 else (f"{count:,} jobs", verb)
    return f"{noun} {verb}".rstrip()


def duration(seconds: float) -> str:
    """About how long, in the largest unit that says it: `45 s`, `12 min`, `3 h`, `2 days`."""
    for unit, length, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"

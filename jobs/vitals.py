"""How the queue is right now, for `/metrics` to show and for `doctor` to judge.

Every read is bounded: it follows a partial index, oldest first, and stops at COUNTED rows, so that looking at a queue
in trouble never adds to the trouble. A count that stands at COUNTED means "at least so many". Ages are seconds by the
database's clock, 0 where there is nothing to be old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from jobs import counters, patience
from jobs.leadership import PUBLISHER_LOCK

COUNTED: Final = 10_000
_PATIENCE_MS: Final = 3000

# Reading a whole backlog may look a little cheaper than following its index to the limit, and has no bound. What is off
# counts as dear beyond measure where it cannot be done without, so each read would be compiled, for half a second.
_BOUNDS: Final = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true), set_config('statement_timeout', %s, true)
"""


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs that are not final, by what they wait for."""

    due: int  # not published, and may run
    delayed: int  # not published: run_at or backoff lies ahead
    published: int  # in the broker, or with a worker that is about to claim it
    running: int
    past_promise: int  # could have run for patience.PROMISE_SECONDS and do not, though nothing holds them back
    oldest_age: float  # since the oldest of those could have run that may run and that nothing holds back
    unclaimed: int  # published longer ago than the sweeper's grace
    oldest_message_age: float
    past_lease: int
    oldest_expired_lease_age: float
    finish_events: int  # ends that no subscriber was told of yet
    oldest_finish_event_age: float


# What holds a due job back, by the rows and by a report of the dispatcher that is not too old (see jobs.waiting). The
# most lasting reason counts; NULL where there is none.
_DUE: Final = """
WITH report AS MATERIALIZED (
    SELECT document -> 'hosts' AS hosts, document -> 'tenants' AS tenants
    FROM jobs_dispatchreport WHERE at > now() - %(report)s * interval '1 second' ORDER BY at DESC LIMIT 1
), oldest AS MATERIALIZED (
    SELECT eligible_at, tenant_id, host FROM jobs_job
    WHERE state = 'queued' AND published_at IS NULL AND eligible_at <= now() ORDER BY eligible_at LIMIT %(counted)s
), due AS (
    SELECT oldest.eligible_at, oldest.host, tenant.name AS tenant, CASE
        WHEN tenant.paused THEN 'tenant_paused'
        WHEN policy.paused THEN 'host_paused'
        WHEN state.blocked_until > now() THEN 'host_blocked'
        WHEN report.tenants ->> tenant.id::text = 'tenant_limit' THEN 'tenant_limit'
        WHEN report.hosts -> oldest.host ->> 0 = 'host_rate' THEN 'host_rate' END AS held_by
    FROM oldest JOIN tenants_tenant tenant ON tenant.id = oldest.tenant_id
    LEFT JOIN jobs_hostpolicy policy ON policy.host = oldest.host
    LEFT JOIN jobs_hoststate state ON state.host = oldest.host
    LEFT JOIN report ON true
)"""
_QUEUE: Final = f"""
{_DUE}, delayed AS (
    SELECT eligible_at FROM jobs_job
    WHERE state = 'queued' AND published_at IS NULL AND eligible_at > now() ORDER BY eligible_at LIMIT %(counted)s
), published AS (
    SELECT published_at, eligible_at FROM jobs_job
    WHERE state = 'queued' AND published_at IS NOT NULL ORDER BY published_at LIMIT %(counted)s
), running AS (
    SELECT lease_expires_at FROM jobs_job WHERE state = 'running' ORDER BY lease_expires_at LIMIT %(counted)s
), finished AS (
    SELECT finished_at FROM jobs_job
    WHERE state IN ('cancelled', 'failed', 'succeeded') AND finish_published_at IS NULL
    ORDER BY finished_at LIMIT %(counted)s
), waiting AS (
    SELECT eligible_at FROM due WHERE held_by IS NULL UNION ALL SELECT eligible_at FROM published
)
SELECT
    (SELECT count(*) FROM due),
    (SELECT count(*) FROM delayed),
    (SELECT count(*) FROM published),
    (SELECT count(*) FROM running),
    (SELECT count(*) FROM waiting WHERE eligible_at < now() - %(promise)s * interval '1 second'),
    (SELECT coalesce(extract(epoch FROM now() - min(eligible_at)), 0) FROM waiting),
    (SELECT count(*) FROM published WHERE published_at < now() - %(grace)s * interval '1 second'),
    (SELECT coalesce(extract(epoch FROM now() - min(published_at)), 0) FROM published),
    (SELECT count(*) FROM running WHERE lease_expires_at < now()),
    (SELECT coalesce(extract(epoch FROM now() - min(lease_expires_at)), 0) FROM running WHERE lease_expires_at < now()),
    (SELECT count(*) FROM finished),
    (SELECT coalesce(extract(epoch FROM now() - min(finished_at)), 0) FROM finished)
"""  # noqa: S608  put together from constants


@dataclass(frozen=True, slots=True)
class Pause:
    """A paused tenant or host and the due jobs that it holds back."""

    of: str  # tenant or host
    name: str
    jobs: int
    oldest_age: float


@dataclass(frozen=True, slots=True)
class Held:
    """Due jobs that could not run although the pool were empty, among the COUNTED that are due for longest."""

    by: Mapping[str, int] = field(default_factory=dict)  # by the reason, as in jobs.waiting
    pauses: tuple[Pause, ...] = ()  # the oldest first


_HELD: Final = f"""
{_DUE}
SELECT held_by, CASE held_by WHEN 'tenant_paused' THEN tenant WHEN 'host_paused' THEN host END, count(*),
    extract(epoch FROM now() - min(eligible_at))
FROM due WHERE held_by IS NOT NULL GROUP BY 1, 2 ORDER BY 4 DESC, 2
"""  # noqa: S608  put together from constants


def _held(rows: Iterable[Sequence[Any]]) -> Held:
    by: Counter[str] = Counter()
    pauses = []
    for reason, name, jobs, age in rows:
        by[reason] += jobs
        if name is not None:
            pauses.append(Pause(reason.partition("_")[0], name, jobs, age))
    return Held(by, tuple(pauses))


@dataclass(frozen=True, slots=True)
class FullQueue:
    """A tenant that has as many jobs queued as may be."""

    tenant: str
    max_queued: int


# Counted among the COUNTED jobs that are due for longest, or soonest, and as many with the bus.
_FULL_QUEUES: Final = """
SELECT tenant.name, tenant.max_queued FROM (
    SELECT tenant_id, count(*) AS number FROM (
        (SELECT tenant_id FROM jobs_job WHERE state = 'queued' AND published_at IS NULL
            ORDER BY eligible_at LIMIT %(counted)s)
        UNION ALL
        (SELECT tenant_id FROM jobs_job WHERE state = 'queued' AND published_at IS NOT NULL
            ORDER BY published_at LIMIT %(counted)s)
    ) queued GROUP BY tenant_id
) its JOIN tenants_tenant tenant ON tenant.id = its.tenant_id AND its.number >= tenant.max_queued
ORDER BY tenant.name LIMIT 100
"""


@dataclass(frozen=True, slots=True)
class Failures:
    """The dead letters, and what the last day's have in common."""

    dead_letters: int
    last_day: int
    crash_loops: int  # of the last day
    biggest_host: str  # of the last day's biggest group with one host and one error
    biggest_code: str
    biggest_count: int


_FAILURES: Final = """
WITH recent AS (
    SELECT host, error_code FROM jobs_job
    WHERE state = 'failed' AND finished_at > now() - interval '1 day' ORDER BY finished_at DESC LIMIT %(counted)s
), incidents AS (
    SELECT host, error_code, count(*) AS number FROM recent GROUP BY host, error_code
)
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM jobs_job WHERE state = 'failed' ORDER BY finished_at LIMIT %(counted)s) dead),
    (SELECT coalesce(sum(number), 0)::bigint FROM incidents),
    (SELECT coalesce(sum(number), 0)::bigint FROM incidents WHERE error_code = 'crash_loop'),
    coalesce(biggest.host, ''), coalesce(biggest.error_code, ''), coalesce(biggest.number, 0)
FROM (SELECT 1) one LEFT JOIN LATERAL (
    SELECT * FROM incidents WHERE error_code <> 'crash_loop' ORDER BY number DESC, host, error_code LIMIT 1
) biggest ON true
"""


@dataclass(frozen=True, slots=True)
class Pool:
    """The worker processes whose heartbeat came within a lease's time."""

    processes: int
    slots: int
    busy: int
    last_seen_age: float | None  # of any process, alive or not; None when none is known
    overdue: int  # rows of processes so long gone that a sweep should have removed them


_POOL: Final = """
SELECT count(*) FILTER (WHERE alive), coalesce(sum(slots) FILTER (WHERE alive), 0),
       coalesce(sum(running) FILTER (WHERE alive), 0), extract(epoch FROM now() - max(seen_at)),
       count(*) FILTER (WHERE seen_at < now() - %(forgotten)s * interval '1 second')
FROM (SELECT *, seen_at > now() - %(lease)s * interval '1 second' AS alive FROM jobs_workerprocess) process
"""


@dataclass(frozen=True, slots=True)
class Server:
    """PostgreSQL itself. Of other roles' sessions the transactions are seen only with the right pg_read_all_stats."""

    publisher_leads: bool
    connections: int
    max_connections: int
    ends_idle_transactions: bool
    oldest_transaction_age: float
    oldest_transaction: str  # who: process id, role, application, state


# A prepared transaction holds back the clean-up as an open one does, and belongs to no session.
_SERVER: Final = """
WITH clients AS (
    SELECT * FROM pg_stat_activity WHERE coalesce(backend_type, 'client backend') = 'client backend'
), transactions AS (
    SELECT xact_start AS since,
           format('process %%s of role %%s (%%s)', pid, usename,
               concat_ws(', ', nullif(application_name, ''), state)) AS who
    FROM clients WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
    UNION ALL
    SELECT prepared, format('prepared transaction %%s of role %%s', quote_literal(gid), owner)
    FROM pg_prepared_xacts WHERE database = current_database()
)
SELECT
    EXISTS (
        SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND classid::bigint << 32 | objid::bigint = %(publisher)s
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),
    (SELECT count(*) FROM clients),
    current_setting('max_connections')::int,
    current_setting('idle_in_transaction_session_timeout') <> '0',
    coalesce(extract(epoch FROM clock_timestamp() - oldest.since), 0), coalesce(oldest.who, '')
FROM (SELECT 1) one LEFT JOIN LATERAL (SELECT * FROM transactions ORDER BY since LIMIT 1) oldest ON true
"""


@dataclass(frozen=True, slots=True)
class Vitals:
    """All of it, as of one moment."""

    queue: Queue
    failures: Failures
    pool: Pool
    server: Server
    stale_attempts: int
    internal_errors: int
    held: Held = field(default_factory=Held)
    full_queues: tuple[FullQueue, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)  # jobs, by the limit of their tenant


def observe() -> Vitals:
    """Read everything, in a transaction of its own. Raises django's database Error; takes a few seconds at most."""
    terms = {
        "counted": COUNTED,
        "promise": patience.PROMISE_SECONDS,
        "grace": patience.lost_message_grace(),
        "lease": settings.LEASE_SECONDS,
        "forgotten": patience.forget_process_after() + patience.late_sweep(),
        "publisher": PUBLISHER_LOCK,
        "report": patience.REPORT_SECONDS,
    }
    # durable: in somebody else's transaction the bounds would stay behind.
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(_BOUNDS, [str(_PATIENCE_MS)])
        return Vitals(
            queue=Queue(*_row(cursor, _QUEUE, terms)),
            failures=Failures(*_row(cursor, _FAILURES, terms)),
            pool=Pool(*_row(cursor, _POOL, terms)),
            server=Server(*_row(cursor, _SERVER, terms)),
            stale_attempts=counters.total(counters.STALE_ATTEMPTS),
            internal_errors=counters.total(counters.INTERNAL_ERRORS),
            held=_held(_rows(cursor, _HELD, terms)),
            full_queues=tuple(FullQueue(*row) for row in _rows(cursor, _FULL_QUEUES, terms)),
            refused={limit: counters.total(name) for limit, name in counters.REFUSED.items()},
        )


def _row(cursor: Any, statement: str, terms: dict[str, Any]) -> list[Any]:
    (row,) = _rows(cursor, statement, terms)
    return row


def _rows(cursor: Any, statement: str, terms: dict[str, Any]) -> list[list[Any]]:
    cursor.execute(statement, terms)
    return [[_plain(value) for value in row] for row in cursor.fetchall()]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value

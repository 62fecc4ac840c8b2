"""How the queue is right now, for `/metrics` to show and for `doctor` to judge.

Every read is bounded: it follows a partial index, oldest first, and stops at COUNTED rows, so that looking at a queue
in trouble never adds to the trouble. A count that stands at COUNTED means "at least so many". Ages are seconds by the
database's clock, 0 where there is nothing to be old.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from jobs import counters, patience
from jobs.leadership import PUBLISHER_LOCK

COUNTED: Final = 10_000
_PATIENCE_MS: Final = 3000

# Reading a whole backlog may look a little cheaper than following its index to the limit, and has no bound.
_BOUNDS: Final = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('statement_timeout', %s, true)
"""


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs that are not final, by what they wait for."""

    due: int  # not published, and may run
    delayed: int  # not published: run_at or backoff lies ahead
    published: int  # in the broker, or with a worker that is about to claim it
    running: int
    past_promise: int  # could have run for patience.PROMISE_SECONDS and do not
    oldest_age: float  # since the oldest of those that may run could have run
    unclaimed: int  # published longer ago than the sweeper's grace
    oldest_message_age: float
    past_lease: int
    oldest_expired_lease_age: float
    finish_events: int  # ends that no subscriber was told of yet
    oldest_finish_event_age: float


_QUEUE: Final = """
WITH due AS (
    SELECT eligible_at FROM jobs_job
    WHERE state = 'queued' AND published_at IS NULL AND eligible_at <= now() ORDER BY eligible_at LIMIT %(counted)s
), delayed AS (
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
    SELECT eligible_at FROM due UNION ALL SELECT eligible_at FROM published
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


def observe() -> Vitals:
    """Read everything, in a transaction of its own. Raises django's database Error; takes a few seconds at most."""
    terms = {
        "counted": COUNTED,
        "promise": patience.PROMISE_SECONDS,
        "grace": patience.lost_message_grace(),
        "lease": settings.LEASE_SECONDS,
        "forgotten": patience.forget_process_after() + patience.late_sweep(),
        "publisher": PUBLISHER_LOCK,
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
        )


def _row(cursor: Any, statement: str, terms: dict[str, Any]) -> list[Any]:
    cursor.execute(statement, terms)
    (row,) = cursor.fetchall()
    return [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value

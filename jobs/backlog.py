"""What the dispatcher reads of the jobs table: few rows, by index, however many wait.

The statements are made for one index each (`jobs.models` names them). Run them inside `reading()`: a planner that has
not counted lately may take a sort of a whole lane for cheaper than following the index to its first row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import connection, transaction

from jobs.durations import Load
from jobs.fairness import Lane
from jobs.leases import MISSED_HEARTBEATS


class Candidate(NamedTuple):
    """A job that may be published now. Ids are text: there are many, and Python takes its time to hash a UUID."""

    job_id: str
    claim_no: int
    priority: int
    host: str
    tenant_id: str


@contextmanager
def reading() -> Iterator[None]:
    """A short transaction whose plans follow the indexes."""
    with transaction.atomic():
        _rows(_BY_INDEX)
        yield


_BY_INDEX: Final = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true)
"""


# what is in flight

_SLOTS: Final = """
SELECT sum(slots) FROM jobs_workerprocess WHERE seen_at > statement_timestamp() - %s * interval '1 second'
"""


def living_slots() -> int:
    """How many jobs the pool can run at once; one process's worth when none is known to live."""
    ((slots,),) = _rows(_SLOTS, [settings.LEASE_SECONDS])
    return max(int(slots or 0), settings.WORKER_SLOTS)


@dataclass(frozen=True, slots=True)
class InFlight:
    """What is published or running, at `now` by the database's clock. The two times say where the oldest stand.

    A running job counts against its host only while its worker gives signs of life: one that missed three heartbeats is
    dead, or has stopped its attempts itself, and their connections are gone long before the lease runs out.
    """

    now: float
    tenants: Mapping[Hashable, Load]
    hosts: Mapping[str, int]
    oldest_message: datetime | None
    first_lease: datetime | None

    @property
    def published(self) -> int:
        return sum(load.published for load in self.tenants.values())

    @property
    def running(self) -> int:
        return sum(load.running for load in self.tenants.values())


# The lower bounds step over the dead entries at the heads of the two indexes, which stay while a snapshot is held open.
_IN_FLIGHT: Final = """
SELECT clock.now, held.* FROM (SELECT extract(epoch FROM clock_timestamp())::float8 AS now) clock LEFT JOIN (
    SELECT tenant_id::text, host, count(published_at), count(claimed_at), coalesce(sum(elapsed), 0)::float8,
           min(published_at), min(lease_expires_at),
           count(*) FILTER (WHERE published_at IS NOT NULL
               OR lease_expires_at > statement_timestamp() + %(renewed)s * interval '1 second')
    FROM (
        SELECT tenant_id, host, published_at, NULL::timestamptz AS claimed_at, NULL::timestamptz AS lease_expires_at,
               NULL::float8 AS elapsed
        FROM jobs_job WHERE state = 'queued' AND published_at >= coalesce(%(messages)s::timestamptz, '-infinity')
        UNION ALL
        SELECT tenant_id, host, NULL, coalesce(claimed_at, statement_timestamp()), lease_expires_at,
               extract(epoch FROM clock_timestamp() - claimed_at)
        FROM jobs_job WHERE state = 'running' AND lease_expires_at >= coalesce(%(leases)s::timestamptz, '-infinity')
    ) jobs GROUP BY tenant_id, host
) held ON true
"""


def in_flight(messages_from: datetime | None = None, leases_from: datetime | None = None) -> InFlight:
    """Everything that is published or running; a bound leaves out what was published, or ends its lease, earlier."""
    renewed = settings.LEASE_SECONDS - MISSED_HEARTBEATS * settings.HEARTBEAT_SECONDS
    rows = _rows(_IN_FLIGHT, {"messages": messages_from, "leases": leases_from, "renewed": renewed})
    tenants: dict[Hashable, Load] = {}
    hosts: dict[str, int] = {}
    found = [row for row in rows if row[1] is not None]
    for _, tenant, host, published, running, elapsed, _, _, connected in found:
        load = tenants.get(tenant, Load())
        tenants[tenant] = Load(load.published + published, load.running + running, load.elapsed + elapsed)
        hosts[host] = hosts.get(host, 0) + connected
    messages = min((row[6] for row in found if row[6]), default=None)
    leases = min((row[7] for row in found if row[7]), default=None)
    return InFlight(rows[0][0], tenants, hosts, messages, leases)


_OLD_IN_WINDOW: Final = """
SELECT EXISTS (
    SELECT FROM jobs_job WHERE state = 'queued' AND published_at < statement_timestamp() - %s * interval '1 second')
"""


def waits_in_window(seconds: float) -> bool:
    """Whether a job was published longer than `seconds` ago and is still unclaimed."""
    ((found,),) = _rows(_OLD_IN_WINDOW, [seconds])
    return bool(found)


# where work waits

_LANES: Final = """
WITH RECURSIVE lane AS (
    (SELECT priority, tenant_id FROM jobs_job WHERE state = 'queued' AND published_at IS NULL
     ORDER BY priority, tenant_id, host, eligible_at, id LIMIT 1)
    UNION ALL
    SELECT next.priority, next.tenant_id FROM lane CROSS JOIN LATERAL (
        SELECT priority, tenant_id FROM jobs_job
        WHERE state = 'queued' AND published_at IS NULL
            AND (priority, tenant_id) > (lane.priority, lane.tenant_id)
        ORDER BY priority, tenant_id, host, eligible_at, id LIMIT 1
    ) next
)
SELECT priority, tenant_id::text FROM lane
"""


def lanes() -> list[Lane]:
    """Every (priority, tenant) with jobs that are to be published, due or not: one step of the index for each."""
    return [Lane(*row) for row in _rows(_LANES)]


# Hosts as they stand in the backlog from its oldest due job to its newest: some have many, and come more than once.
_STARTS: Final = """
SELECT found.host FROM (
    SELECT min(eligible_at) AS oldest, least(max(eligible_at), statement_timestamp()) AS newest
    FROM jobs_job WHERE state = 'queued' AND published_at IS NULL
) due CROSS JOIN generate_series(0, %(number)s - 1) n CROSS JOIN LATERAL (
    SELECT host FROM jobs_job
    WHERE state = 'queued' AND published_at IS NULL
        AND eligible_at >= due.oldest + (due.newest - due.oldest) * n / %(number)s
    ORDER BY eligible_at, id LIMIT 1
) found
"""


def starts(number: int) -> list[str]:
    """Hosts at which walks may begin, spread over the backlog: `number` of them, or none when nothing waits."""
    return [host for (host,) in _rows(_STARTS, {"number": number})]


_FRESH: Final = """
SELECT DISTINCT priority, tenant_id::text, host FROM (
    SELECT priority, tenant_id, host FROM jobs_job
    WHERE state = 'queued' AND published_at IS NULL AND eligible_at <= statement_timestamp()
        AND eligible_at > statement_timestamp() - %s * interval '1 second'
    ORDER BY eligible_at DESC, id DESC LIMIT %s
) newest
"""


def fresh_hosts(seconds: float, limit: int) -> list[tuple[Lane, str]]:
    """Where jobs became due in the last `seconds`, with their hosts: the newest `limit` jobs are looked at."""
    return [(Lane(priority, tenant), host) for priority, tenant, host in _rows(_FRESH, [seconds, limit])]


_NEXT_DUE: Final = """
SELECT extract(epoch FROM min(eligible_at) - statement_timestamp()) FROM jobs_job
WHERE state = 'queued' AND published_at IS NULL AND eligible_at > statement_timestamp()
"""


def seconds_until_next_due() -> float | None:
    """Seconds until the next waiting job (a retry, a run_at) becomes due; None when none waits."""
    ((seconds,),) = _rows(_NEXT_DUE)
    return None if seconds is None else float(seconds)


# the heads of lanes

Position = tuple[str, str]  # eligible_at as PostgreSQL writes it, id


@dataclass(frozen=True, slots=True)
class Walk:
    """Where a walk over a lane's hosts stands: it goes on behind `after` and, past the last host, from the first up to
    and with `until`. A new one has both alike."""

    after: str = ""
    until: str = ""
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """Rows wanted of one lane: about `rows` from its hosts in turn, and as many of each host in `hosts`.

    `seen` says of some hosts where to go on. Without a `walk` only `hosts` are read.
    """

    lane: Lane
    rows: int
    walk: Walk | None
    hosts: Sequence[str] = ()
    seen: Mapping[str, Position] = field(default_factory=dict)


@dataclass(slots=True)
class Heads:
    """What was found of one lane."""

    jobs: list[Candidate] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)  # the last row read of each host
    counts: dict[str, int] = field(default_factory=dict)  # rows read of each host
    passed: list[str] = field(default_factory=list)  # parked hosts, of which no row was read
    walk: Walk | None = None  # where it stopped; None when it came round
    last_host: str = ""
    more: bool = False  # a host may have more rows than were asked for


_QUEUED: Final = """j.state = 'queued' AND j.published_at IS NULL
          AND j.priority = {0}.priority AND j.tenant_id = {0}.tenant_id"""
_FIRST_HOST: Final = "ORDER BY j.priority, j.tenant_id, j.host, j.eligible_at, j.id LIMIT 1"

# `walk` visits the hosts of each lane in turn, one step of the index each. The branches of a UNION ALL are tried in
# order, and the LIMIT ends it at the first that has a row.
_HEADS: Final = f"""
WITH RECURSIVE wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(wanted)s) AS w (
        lane int, priority smallint, tenant_id uuid, rows int, after text, until text, wrapped boolean)
), walk AS (
    SELECT lane, priority, tenant_id, rows, until, after AS host, wrapped, 0 AS step, 0 AS open
    FROM wanted WHERE after IS NOT NULL
    UNION ALL
    SELECT k.lane, k.priority, k.tenant_id, k.rows, k.until, found.host, found.wrapped, k.step + 1,
           k.open + (found.host <> ALL(%(parked)s::text[]))::int
    FROM walk k CROSS JOIN LATERAL (
        (SELECT j.host, false AS wrapped FROM jobs_job j
         WHERE NOT k.wrapped AND {_QUEUED.format("k")} AND j.host > k.host {_FIRST_HOST})
        UNION ALL
        (SELECT j.host, true FROM jobs_job j
         WHERE NOT k.wrapped AND {_QUEUED.format("k")} AND j.host <= k.until {_FIRST_HOST})
        UNION ALL
        (SELECT j.host, true FROM jobs_job j
         WHERE k.wrapped AND {_QUEUED.format("k")} AND j.host > k.host AND j.host <= k.until {_FIRST_HOST})
        LIMIT 1
    ) found WHERE k.open < k.rows AND k.step < %(steps)s
), host AS (
    SELECT lane, priority, tenant_id, host, wrapped, step, open,
           ceil(rows::float8 / greatest(max(open) OVER (PARTITION BY lane), 1))::int AS rows
    FROM walk WHERE step > 0
    UNION ALL
    SELECT w.lane, w.priority, w.tenant_id, d.host, false, 0, 0, w.rows
    FROM json_to_recordset(%(direct)s) AS d (lane int, host text) JOIN wanted w USING (lane)
), place AS (
    SELECT h.*, coalesce(s.eligible_at, '-infinity') AS from_time,
           coalesce(s.id, '00000000-0000-0000-0000-000000000000') AS from_id
    FROM host h
    LEFT JOIN json_to_recordset(%(seen)s) AS s (lane int, host text, eligible_at timestamptz, id uuid)
        ON s.lane = h.lane AND s.host = h.host
)
SELECT p.lane, p.host, p.wrapped, p.step, p.open, p.rows, head.id::text, head.claim_no, head.eligible_at::text
FROM place p LEFT JOIN LATERAL (
    SELECT j.id, j.claim_no, j.eligible_at FROM jobs_job j
    WHERE {_QUEUED.format("p")} AND j.host = p.host AND j.eligible_at <= statement_timestamp()
        AND (j.eligible_at, j.id) > (p.from_time, p.from_id)
    ORDER BY j.eligible_at, j.id LIMIT p.rows
) head ON p.host <> ALL(%(parked)s::text[])
"""  # noqa: S608  put together from constants


def heads(requests: Sequence[Request], parked: Collection[str], *, steps: int) -> list[Heads]:
    """The next due jobs of each requested lane, of which at most `steps` hosts are visited.

    Of a parked host no row is read, only that it has some.
    """
    found = [Heads() for _ in requests]
    last_step = [0] * len(requests)
    for lane, host, wrapped, step, is_open, rows, job_id, claim_no, eligible_at in _rows(
        _HEADS, _parameters(requests, parked, steps)
    ):
        heads, request = found[lane], requests[lane]
        if step > last_step[lane] and request.walk is not None:
            last_step[lane], heads.last_host = step, host
            ended = is_open < request.rows and step < steps  # by itself, and not because it was enough
            heads.walk = None if ended else Walk(host, request.walk.until, wrapped)
        if job_id is None:
            if host in parked and host not in heads.passed:
                heads.passed.append(host)
            continue
        heads.jobs.append(Candidate(job_id, claim_no, request.lane.priority, host, str(request.lane.tenant)))
        heads.positions[host] = (eligible_at, job_id)
        heads.counts[host] = heads.counts.get(host, 0) + 1
        heads.more = heads.more or heads.counts[host] >= rows
    return found


def _parameters(requests: Sequence[Request], parked: Collection[str], steps: int) -> dict[str, Any]:
    """Tables go as JSON, which is written several times faster than arrays of parameters."""
    wanted: list[dict[str, Any]] = []
    direct: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    for number, request in enumerate(requests):
        priority, tenant = request.lane
        row = {"lane": number, "priority": priority, "tenant_id": tenant, "rows": request.rows}
        walk = request.walk
        wanted.append(row if walk is None else {**row, **{name: getattr(walk, name) for name in _WALK_FIELDS}})
        direct += [{"lane": number, "host": host} for host in request.hosts]
        seen += [
            {"lane": number, "host": host, "eligible_at": at, "id": job_id}
            for host, (at, job_id) in request.seen.items()
        ]
    tables = {"wanted": json.dumps(wanted), "direct": json.dumps(direct), "seen": json.dumps(seen)}
    return {**tables, "steps": steps, "parked": list(parked)}


_WALK_FIELDS: Final = ("after", "until", "wrapped")


def _rows(statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())

"""What is known of each host: the operators' limits (`HostPolicy`) and what the host itself has told (`HostState`).

The rows are the durable side. What may go right now is decided in Redis, by the worker, just before it claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from jobs.models import CrawlDelay, HostPolicy, HostState
from jobs.retries import RETRY_AFTER_CAP_SECONDS

LIMITER_PREFIX: Final = "politeness:"  # of every key in Redis by which workers decide
SLOWEST_PACE: Final = 1 / 16  # a host that only ever answers 429 is still asked now and then, or it could never recover


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What one host is asked for at most: `rate` requests a second, `burst` at once after a rest, `concurrency`
    connections at a time. `adaptive`: it is slowed down by its own 429 and 503. `paused`: nothing is fetched."""

    rate: float
    burst: int
    concurrency: int
    adaptive: bool = True
    paused: bool = False


Fingerprint = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Policies:
    """All limits as they stood at one moment; `fingerprint` tells whether they have changed since."""

    default: HostLimits
    overrides: Mapping[str, HostLimits] = field(default_factory=dict)
    fingerprint: Fingerprint = (0, 0)

    def limits_of(self, host: str) -> HostLimits:
        """The limits of `host`, which is written as in `Job.host`."""
        return self.overrides.get(host, self.default)


@dataclass(frozen=True, slots=True)
class ActiveState:
    """What a host has told and still holds. `blocked_until` is None where no block is left; `pace` is in (0, 1].

    `blocked_seconds` is what is left of the block by the database's clock.
    """

    blocked_until: datetime | None
    blocked_by: str
    pace: float
    blocked_seconds: float = 0.0


def default_limits() -> HostLimits:
    """Those of a host that no operator has said anything about."""
    return HostLimits(settings.DEFAULT_HOST_RATE, settings.DEFAULT_HOST_BURST, settings.DEFAULT_HOST_CONCURRENCY)


def load_policies() -> Policies:
    """Every override there is. Raises django's database Error."""
    # Before the rows: a change in between makes the next look load them once more, never once too few.
    fingerprint = policies_fingerprint()
    default = default_limits()
    delays = dict(CrawlDelay.objects.values_list("host", "seconds"))
    overrides = {host: at_most_every(seconds, default) for host, seconds in delays.items()}
    for policy in HostPolicy.objects.all():
        overrides[policy.host] = limits_in(policy, default, crawl_delay=delays.get(policy.host))
    return Policies(default, overrides, fingerprint)


def crawl_delay_of(host: str) -> float | None:
    """Seconds between two requests, as the robots.txt of `host` asked for; None when it asked for none."""
    return CrawlDelay.objects.filter(host=host).values_list("seconds", flat=True).first()


def limits_in(policy: HostPolicy, default: HostLimits, *, crawl_delay: float | None = None) -> HostLimits:
    """The limits that a row means, its gaps filled from `default`; a `crawl_delay` counts where no rate was set."""
    if crawl_delay is not None and policy.rate is None:
        default = at_most_every(crawl_delay, default)
    return HostLimits(
        rate=default.rate if policy.rate is None else policy.rate,
        burst=default.burst if policy.burst is None else policy.burst,
        concurrency=default.concurrency if policy.concurrency is None else policy.concurrency,
        adaptive=policy.adaptive,
        paused=policy.paused,
    )


def at_most_every(seconds: float, limits: HostLimits) -> HostLimits:
    """The limits of a host whose robots.txt asks for so many seconds between two requests (Crawl-delay)."""
    return replace(limits, rate=min(limits.rate, 1 / seconds), burst=1)


# Each write gives its row a new transaction number, whoever makes it; a time would miss a commit that came late.
# A delay that was only read again is the same.
_FINGERPRINT = """
SELECT count(*), coalesce(sum(version), 0)::bigint FROM (
    SELECT xmin::text::bigint AS version FROM jobs_hostpolicy
    UNION ALL SELECT hashfloat8(seconds) + hashtext(host)::bigint FROM jobs_crawldelay) AS rows
"""


def policies_fingerprint() -> Fingerprint:
    """Changes whenever an override does. One cheap query."""
    with connection.cursor() as cursor:
        cursor.execute(_FINGERPRINT)
        count, versions = cursor.fetchone()
    return int(count), int(versions)


def active_states() -> dict[str, ActiveState]:
    """By host, the blocks that have not run out and the paces below 1."""
    rows = HostState.objects.filter(Q(blocked_until__gt=Now()) | Q(pace__lt=1)).annotate(now=Now())
    return {row.host: _active(row, row.now) for row in rows}


def _active(row: HostState, now: datetime) -> ActiveState:
    seconds = 0.0 if row.blocked_until is None else max((row.blocked_until - now).total_seconds(), 0.0)
    return ActiveState(row.blocked_until if seconds else None, row.blocked_by, row.pace, seconds)


_BLOCK = """
INSERT INTO jobs_hoststate (host, blocked_until, blocked_by, pace, changed_at)
VALUES (%(host)s, now() + %(seconds)s * interval '1 second', %(by)s, 1, now())
ON CONFLICT (host) DO UPDATE SET
    blocked_until = excluded.blocked_until, blocked_by = excluded.blocked_by, changed_at = excluded.changed_at
WHERE jobs_hoststate.blocked_until IS NULL OR jobs_hoststate.blocked_until < excluded.blocked_until
"""


def block(host: str, seconds: float, *, by: str) -> None:
    """No request to `host` for `seconds` (at most a day) from now on; `by` is the error code that told so.

    A block that ends later is left as it is.
    """
    seconds = min(seconds, RETRY_AFTER_CAP_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute(_BLOCK, {"host": host, "seconds": seconds, "by": by[:32]})


_RECORD_PACE = """
INSERT INTO jobs_hoststate (host, blocked_by, pace, changed_at) VALUES (%(host)s, '', %(pace)s, now())
ON CONFLICT (host) DO UPDATE SET pace = excluded.pace, changed_at = excluded.changed_at
"""


def record_pace(host: str, pace: float) -> None:
    """The part of its rate, from SLOWEST_PACE to 1, that `host` gets from now on."""
    with connection.cursor() as cursor:
        cursor.execute(_RECORD_PACE, {"host": host, "pace": min(max(pace, SLOWEST_PACE), 1.0)})


# A row that a block renews meanwhile is checked again, once its lock is there, and stays.
_RECORD_DELAY = """
INSERT INTO jobs_crawldelay (host, seconds, read_at) VALUES (%(host)s, %(seconds)s, now())
ON CONFLICT (host) DO UPDATE SET seconds = excluded.seconds, read_at = excluded.read_at
"""


def record_crawl_delay(host: str, seconds: float) -> None:
    """What the robots.txt of `host`, just read, asks for; 0 for nothing. An operator's own rate stays as it is."""
    with connection.cursor() as cursor:
        if seconds > 0:
            cursor.execute(_RECORD_DELAY, {"host": host, "seconds": seconds})
        else:
            cursor.execute("DELETE FROM jobs_crawldelay WHERE host = %s", [host])


_FORGET = """
DELETE FROM jobs_hoststate WHERE host IN (
    SELECT host FROM jobs_hoststate
    WHERE (pace >= 1 OR changed_at < now() - interval '1 day') AND (blocked_until IS NULL OR blocked_until < now())
    ORDER BY host LIMIT %s FOR UPDATE SKIP LOCKED)
"""


def forget_idle_states(limit: int) -> int:
    """Drop up to `limit` rows that say nothing any more, or whose pace nobody has confirmed for a day (Redis forgets it
    then as well); returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [limit])
        return int(cursor.rowcount)


_FORGET_DELAYS = """
DELETE FROM jobs_crawldelay WHERE host IN (
    SELECT host FROM jobs_crawldelay WHERE read_at < now() - interval '1 day' ORDER BY host LIMIT %s
    FOR UPDATE SKIP LOCKED)
"""


def forget_crawl_delays(limit: int) -> int:
    """Drop up to `limit` delays whose file nobody has read for a day (RFC 9309 2.4); returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_DELAYS, [limit])
        return int(cursor.rowcount)

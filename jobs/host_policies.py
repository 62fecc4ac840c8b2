"""What operators do about a host: change its policy, lift its block, look at it; by command and in the admin alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from django.db import transaction
from django.db.models.functions import Now
from django_redis import get_redis_connection
from redis.exceptions import RedisError

from core.errors import Unavailable
from jobs import notices
from jobs.hosts import LIMITER_PREFIX, active_states, crawl_delay_of, default_limits, limits_in
from jobs.models import HostPolicy, HostState
from jobs.targets import InvalidTarget, hosts_named, parse_target

SLOWEST_RATE, HIGHEST_RATE = 0.001, 1_000_000.0
HIGHEST_COUNT: Final = 1_000_000
LONGEST_NOTE: Final = 2000

# Only where the host is known: a key that this made would have no end.
_LIFT = """
local epoch = redis.call('HGET', KEYS[1] .. 'epoch', 'id')
local key = KEYS[1] .. (epoch or '') .. ':host:' .. ARGV[1]
return redis.call('EXISTS', key) == 1 and redis.call('HSET', key, 'b', '0')
"""


class BlockNotLifted(Unavailable):
    """Redis, where workers ask, did not answer."""

    default_detail: ClassVar[str] = "Redis does not answer; the block may hold until it is lifted once more."


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as it stands: the limits that count, and what it has told. `blocked_until` is None without a block."""

    host: str
    rate: float
    burst: int
    concurrency: int
    adaptive: bool
    paused: bool
    blocked_until: datetime | None
    pace: float
    note: str
    changed_by: str


def hosts_meant(text: str) -> list[str]:
    """The hosts, as they are stored, that `text` means: of a URL its own, of `name:port` that one, of a bare name its
    port 443 and its port 80, in this order. Raises InvalidTarget."""
    if "://" in text:
        return [parse_target(text).host]
    return sorted(hosts_named(text), key=lambda host: not host.endswith(":443"))


def host_meant(text: str) -> str:
    """The one host that `text` means: a URL, or a name with its port. Raises InvalidTarget."""
    hosts = hosts_meant(text)
    if len(hosts) > 1:
        raise InvalidTarget(f"Say which port, as {hosts[0]} or {hosts[1]}.")
    return hosts[0]


def rate_problem(rate: float) -> str | None:
    """What is wrong with a rate, if anything."""
    if math.isfinite(rate) and SLOWEST_RATE <= rate <= HIGHEST_RATE:
        return None
    return f"must be a number of requests a second from {SLOWEST_RATE:g} to {HIGHEST_RATE:,.0f}; pause to stop a host"


def count_problem(count: int) -> str | None:
    """What is wrong with a burst or a number of connections, if anything."""
    if 1 <= count <= HIGHEST_COUNT:
        return None
    return f"must be a whole number from 1 to {HIGHEST_COUNT:,}; pause to stop a host"


def change(host: str, changes: Mapping[str, Any], *, by: str) -> None:
    """Set columns of the policy of `host`; those not named stay, or are at their defaults. `by` is who wants it."""
    with transaction.atomic():
        HostPolicy.objects.get_or_create(host=host)
        HostPolicy.objects.filter(host=host).update(**changes, changed_by=by[:150], changed_at=Now())
        if changes.get("adaptive") is False:
            HostState.objects.filter(host=host).update(pace=1.0, changed_at=Now())
    notices.work_waits()


def lift_block(host: str) -> None:
    """The host may be called again, whatever its Retry-After said. Raises BlockNotLifted."""
    HostState.objects.filter(host=host).update(blocked_until=None, blocked_by="", changed_at=Now())
    try:
        get_redis_connection("default").eval(_LIFT, 1, LIMITER_PREFIX, host)
    except (RedisError, OSError) as error:
        raise BlockNotLifted from error
    notices.work_waits()


def view(host: str) -> HostView:
    """How `host` stands."""
    policy = HostPolicy.objects.filter(host=host).first() or HostPolicy(host=host)
    limits = limits_in(policy, default_limits(), crawl_delay=crawl_delay_of(host))
    state = active_states().get(host)
    return HostView(
        host=host,
        rate=limits.rate,
        burst=limits.burst,
        concurrency=limits.concurrency,
        adaptive=limits.adaptive,
        paused=limits.paused,
        blocked_until=None if state is None else state.blocked_until,
        pace=1.0 if state is None or not limits.adaptive else state.pace,
        note=policy.note,
        changed_by=policy.changed_by,
    )


Check = Callable[[Any], str | None]
CHECKS: Final[dict[str, Check]] = {"rate": rate_problem, "burst": count_problem, "concurrency": count_problem}

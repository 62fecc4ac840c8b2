"""How many jobs a tenant submits a second: one bucket in Redis for all web processes, one round trip a submission.

Redis is asked within PATIENCE_SECONDS. When it does not answer nobody is refused for it, and nobody else waits: for
PAUSE_SECONDS this process counts by itself, then one request asks again. Meanwhile each process lets the whole rate
through, so a tenant may get it as many times as there are web processes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Final

import redis
from django.conf import settings

from core.quota import UNLIMITED, Quota
from core.redis_client import impatient
from tenants import buckets
from tenants.buckets import Level
from tenants.errors import SubmitRateExceeded
from tenants.models import Tenant

PATIENCE_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 2.0
KEPT_TENANTS: Final = 10_000  # whose level this process remembers, for the headers and for itself

logger = logging.getLogger(__name__)

# The same arithmetic as in `buckets`, by the clock of Redis. Answers with 1 or 0, and what is in the bucket now.
_TAKE: Final = """
local rate, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local tokens = rate
local kept = redis.call('GET', KEYS[1])
if kept then
    local before, at = string.match(kept, '^(%S+) (%S+)$')
    tokens = math.min(rate, tonumber(before) + rate * math.max(0, now - tonumber(at)))
end
if tokens < math.min(wanted, rate) then
    return {0, string.format('%.6f', tokens)}
end
tokens = tokens - wanted
local until_full = math.ceil((rate - tokens) / rate * 1000)
redis.call('SET', KEYS[1], string.format('%.6f %.6f', tokens, now), 'PX', until_full + 1000)
return {1, string.format('%.6f', tokens)}
"""


class Throttle:
    """The buckets, as one process sees them. Safe to use from many threads."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._take = impatient(url, PATIENCE_SECONDS).register_script(_TAKE)
        self._clock = clock
        self._lock = threading.Lock()
        self._levels: OrderedDict[uuid.UUID, Level] = OrderedDict()
        self._silent = False
        self._ask_again_at = 0.0

    def take(self, tenant_id: uuid.UUID, rate: int, count: int) -> float:
        """Take `count` all at once or not at all. Returns seconds to wait before the next try, 0 when they are had."""
        answer = self._shared(tenant_id, rate, count)
        with self._lock:
            had, level = answer or self._own(tenant_id, rate, count)
            self._remember(tenant_id, level)
        return 0.0 if had else buckets.seconds_until(level, rate, count)

    def quota(self, tenant_id: uuid.UUID, rate: int) -> Quota:
        """What is left, as far as this process knows from its own last look; asks nobody."""
        with self._lock:
            level = self._level(tenant_id, rate)
        reset = max(1, math.ceil(buckets.seconds_until(level, rate, 1)))
        return Quota(rate, max(0, math.floor(level.tokens)), reset)

    def _shared(self, tenant_id: uuid.UUID, rate: int, count: int) -> tuple[bool, Level] | None:
        """The answer of Redis; None where there is none."""
        if self._silent and not self._is_my_turn():
            return None
        try:
            had, tokens = self._take(keys=[f"submit:{tenant_id}"], args=[rate, count])
        except (redis.RedisError, OSError) as error:
            self._note_silence(error)
            return None
        self._silent = False
        return bool(had), Level(float(tokens), self._clock())

    def _is_my_turn(self) -> bool:
        """Whether this thread is the one that asks Redis again."""
        with self._lock:
            now = self._clock()
            if now < self._ask_again_at:
                return False
            self._ask_again_at = now + PAUSE_SECONDS
            return True

    def _note_silence(self, error: Exception) -> None:
        if not self._silent:
            logger.warning("submissions are counted by each process alone, Redis does not answer: %s", error)
        with self._lock:
            self._silent = True
            self._ask_again_at = self._clock() + PAUSE_SECONDS

    def _own(self, tenant_id: uuid.UUID, rate: int, count: int) -> tuple[bool, Level]:
        level = self._level(tenant_id, rate)
        after = buckets.taken(level, rate, count)
        return after is not None, after or level

    def _level(self, tenant_id: uuid.UUID, rate: int) -> Level:
        now = self._clock()
        known = self._levels.get(tenant_id)
        return buckets.full(rate, now=now) if known is None else buckets.filled(known, rate, now=now)

    def _remember(self, tenant_id: uuid.UUID, level: Level) -> None:
        self._levels[tenant_id] = level
        self._levels.move_to_end(tenant_id)
        if len(self._levels) > KEPT_TENANTS:
            self._levels.popitem(last=False)


@cache
def shared() -> Throttle:
    """This process's way to the buckets."""
    return Throttle(settings.REDIS_URL)


def take(tenant: Tenant, count: int) -> None:
    """Let the tenant submit `count` jobs, or raise SubmitRateExceeded; without a limit nobody is asked."""
    if tenant.submit_rate is None:
        return
    wait = shared().take(tenant.id, tenant.submit_rate, count)
    if wait > 0:
        seconds = max(1, math.ceil(wait))
        raise SubmitRateExceeded(
            f"This tenant may submit {tenant.submit_rate:,} jobs a second. Try again in {seconds} s.",
            retry_after=seconds,
        )


def quota_of(tenant: Tenant) -> Quota:
    """What the answer to this tenant says of its rate. Costs no round trip."""
    return UNLIMITED if tenant.submit_rate is None else shared().quota(tenant.id, tenant.submit_rate)

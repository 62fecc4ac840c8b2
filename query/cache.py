"""Cache-aside for one job's answer in Redis, key `job:{id}`: two seconds while the job can change, until its result
expires once it has succeeded. The write side knows nothing of it; the finish event drops the key.

Dropping leaves a tombstone for as long as a reader that was faster than the change may still be on its way to write
what it had read. Every write and tombstone is one script, so of any two the newer stays (see `versions`).

Redis is asked within PATIENCE_SECONDS. When it does not answer, the breaker lets nobody else wait for it, and all is
read from the database: slower, and right.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Final, TypeVar, cast

import redis
from django.conf import settings

from core.breaker import Breaker
from core.redis_client import impatient
from jobs.models import Job
from jobs.states import State
from query import versions
from query.answers import JobAnswer
from query.versions import Version

CHANGING_SECONDS: Final = 2.0
"""Counted, by the clock of Redis, from before the row was read: however long its reader then takes to write it down,
nobody is told of it any later."""
TOMBSTONE_SECONDS: Final = 3.0  # longer than any answer that is older than the tombstone can live
RESERVED_SECONDS: Final = 0.5  # for one reader to read a row; a reader that dies holds nobody for longer
PATIENCE_SECONDS: Final = 0.04  # of a promise of 50 ms

T = TypeVar("T")

# `claim_no rank read_at floor tenant etag`, a line end, the body. A tombstone is `0 0 0 floor`: nothing that was read
# at the floor or before may be written, also not over an answer that has replaced the tombstone.
_HEAD: Final = r"""
local function head(kept)
    local claim_no, rank, read_at, floor = string.match(kept or '', '^(%d+) (%d+) (%d+) (%d+)[ \n]')
    return tonumber(claim_no or 0), tonumber(rank or 0), tonumber(read_at or 0), floor or '0'
end
"""
_CLOCK: Final = """
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""
_REMEMBER: Final = (
    _HEAD
    + _CLOCK
    + """
if redis.call('GET', KEYS[2]) == ARGV[6] then
    redis.call('DEL', KEYS[2])
end
local milliseconds = tonumber(ARGV[5]) + tonumber(ARGV[7]) - clock()
if milliseconds < 1 then
    return 0
end
local claim_no, rank, read_at, floor = head(redis.call('GET', KEYS[1]))
local new_claim_no, new_rank, new_read_at = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if new_read_at <= tonumber(floor) or new_claim_no < claim_no then
    return 0
end
if new_claim_no == claim_no and (new_rank < rank or (new_rank == rank and new_read_at < read_at)) then
    return 0
end
redis.call('SET', KEYS[1], table.concat({ARGV[1], ARGV[2], ARGV[3], floor, ARGV[4]}, ' '), 'PX', milliseconds)
return 1
"""
)
_FORGET: Final = (
    _HEAD
    + r"""
local kept = redis.call('GET', KEYS[1])
local _, _, read_at, floor = head(kept)
if tonumber(floor) >= tonumber(ARGV[1]) then
    return 0
end
if read_at > tonumber(ARGV[1]) then
    local raised = string.gsub(kept, '^(%d+ %d+ %d+) %d+', '%1 ' .. ARGV[1], 1)
    redis.call('SET', KEYS[1], raised, 'KEEPTTL')
    return 0
end
redis.call('SET', KEYS[1], '0 0 0 ' .. ARGV[1] .. '\n', 'PX', ARGV[2])
return 1
"""
)
_LOOK: Final = (
    _CLOCK
    + """
local kept = redis.call('GET', KEYS[1])
if kept and string.sub(kept, 1, 6) ~= '0 0 0 ' then
    return {clock(), kept}
end
return {clock(), redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0}
"""
)
_RELEASE: Final = """
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
"""


class Turn(Enum):
    """What a reader does that found no answer."""

    MINE = 1  # read the row: the others wait for it
    ANOTHERS = 2  # another is reading it: look again in a moment
    NOBODYS = 3  # there is no cache to look into


@dataclass(frozen=True, slots=True)
class Keep:
    """How long an answer is kept: `seconds` from `since` on, the time of the look that it was read after."""

    seconds: float
    since: int


@dataclass(frozen=True, slots=True)
class Look:
    """What a reader found, and when it looked: milliseconds by the clock of Redis, None where that is not known."""

    found: JobAnswer | Turn
    at: int | None = None


class AnswerCache:
    """The answers as one process sees them. Safe to use from many threads."""

    def __init__(self, url: str) -> None:
        self._redis = impatient(url, PATIENCE_SECONDS)
        self._remember = self._redis.register_script(_REMEMBER)
        self._forget = self._redis.register_script(_FORGET)
        self._look = self._redis.register_script(_LOOK)
        self._release = self._redis.register_script(_RELEASE)
        self._breaker = Breaker("the cache", self._redis.ping, (redis.RedisError, OSError))

    def recall(self, job_ids: Sequence[str]) -> list[JobAnswer | None]:
        """The answers to those jobs in one round trip; None for each that is not there."""
        kept = self._ask(lambda: cast("list[bytes | None]", self._redis.mget([_key(job_id) for job_id in job_ids])))
        return [None] * len(job_ids) if kept is None else [versions.read(one) for one in kept]

    def look(self, tenant_id: uuid.UUID, job_id: uuid.UUID, reader: str) -> Look:
        """The answer, or whose turn it is to make it. `reader` names who looks; MINE ends with `remember`, `release`,
        or after RESERVED_SECONDS."""
        keys = [_key(job_id), _reader_key(tenant_id, job_id)]
        said = self._ask(lambda: self._look(keys=keys, args=[reader, int(RESERVED_SECONDS * 1000)]))
        if said is None:
            return Look(Turn.NOBODYS)
        at, found = said
        if isinstance(found, bytes):
            return Look(versions.read(found) or Turn.NOBODYS, at)
        return Look(Turn.MINE if found else Turn.ANOTHERS, at)

    def remember(self, answer: JobAnswer, job_id: uuid.UUID, version: Version, keep: Keep, reader: str = "-") -> bool:
        """Keep the answer; False where a newer one is known, or nothing is left of its time."""
        keys = [_key(job_id), _reader_key(answer.tenant_id, job_id)]
        read: list[int | str | bytes] = [version.claim_no, version.rank, version.read_at, versions.written(answer)]
        what = [*read, int(keep.seconds * 1000), reader, keep.since]
        return bool(self._ask(lambda: self._remember(keys=keys, args=what)))

    def release(self, tenant_id: uuid.UUID, job_id: uuid.UUID, reader: str) -> None:
        """The reader has nothing to keep: let the next one try."""
        self._ask(lambda: self._release(keys=[_reader_key(tenant_id, job_id)], args=[reader]))

    def forget(self, job_id: uuid.UUID, at: datetime) -> None:
        """Nothing that was read at `at` or before, by the database's clock, is right any more."""
        what = [versions.microseconds(at), int(TOMBSTONE_SECONDS * 1000)]
        self._ask(lambda: self._forget(keys=[_key(job_id)], args=what))

    def _ask(self, call: Callable[[], T]) -> T | None:
        """What Redis says; None where it says nothing."""
        if not self._breaker.closed:
            return None
        try:
            return call()
        except (redis.RedisError, OSError) as error:
            self._breaker.trip(error)
            return None


def seconds_to_keep(job: Job, *, now: datetime) -> float:
    """How long an answer stays right that was read at `now`, by the database's clock.

    Only a success stays so: what failed or was cancelled may be tried again.
    """
    if job.state == State.SUCCEEDED and job.result_expires_at is not None:
        return max((job.result_expires_at - now).total_seconds(), CHANGING_SECONDS)
    return CHANGING_SECONDS


def _key(job_id: uuid.UUID | str) -> str:
    return f"job:{job_id}"


def _reader_key(tenant_id: uuid.UUID, job_id: uuid.UUID) -> str:
    """By tenant as well: nobody can make another tenant's readers wait."""
    return f"job:{job_id}:reader:{tenant_id.hex}"


@cache
def shared() -> AnswerCache:
    """This process's way to the answers."""
    return AnswerCache(settings.REDIS_URL)

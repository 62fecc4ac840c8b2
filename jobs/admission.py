"""Whether a tenant may have more jobs queued: its limit `max_queued`.

Up to EXACT the limit is exact: one submission of the tenant after the other is counted, under a lock. A higher limit is
looked at now and then: each look allows this process a share of the room that is left, to be used within a second. So
such a queue may come to stand over its limit, by what the other web processes were allowed a moment ago (each a
sixteenth of the room there was, or a thousandth of the limit if that is more) and what is just being stored. What the
service itself gives back to the queue (a retry of its own, a lease that ran out) is never refused.

A look counts no further than the limit, and a refusal is remembered for twenty times as long as the look took, five
seconds at most.

TooManyRequests
`- TooManyQueued                 too_many_queued         429, Retry-After
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from django.db import connection, transaction

from core.errors import TooManyRequests
from tenants.models import Tenant

EXACT: Final = 1000
SHARES: Final = 16
PRECISION: Final = 1000
ALLOWED_SECONDS: Final = 1.0
REST: Final = 20
REST_SECONDS: Final = 5.0
KEPT_TENANTS: Final = 10_000
RETRY_SECONDS: Final = 1
PAUSED_RETRY_SECONDS: Final = 60  # nothing leaves the queue of a paused tenant by itself


class TooManyQueued(TooManyRequests):
    """As many of the tenant's jobs are waiting as may."""

    code: ClassVar[str] = "too_many_queued"
    default_detail: ClassVar[str] = "As many of this tenant's jobs are queued as may be; wait until some have started."


Look = Callable[[uuid.UUID, int], int]
"""How many jobs of a tenant are queued, counted up to a limit."""

_QUEUED: Final = """
SELECT count(*) FROM (
    SELECT FROM jobs_job WHERE tenant_id = %s AND state = 'queued' LIMIT %s) queued
"""
# By old statistics the planner may take the table for full of such rows, and read it whole to find that none is there.
_BY_INDEX: Final = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true)"""
_TURN: Final = f"{_BY_INDEX}, pg_advisory_xact_lock(%s)"


def count_in_turn(tenant_id: uuid.UUID, limit: int) -> int:
    """The tenant's queued jobs, those of the future among them; no further than `limit`. For who has taken the turn."""
    with connection.cursor() as cursor:
        cursor.execute(_QUEUED, [tenant_id, limit])
        return int(cursor.fetchone()[0])


def count_queued(tenant_id: uuid.UUID, limit: int) -> int:
    """The same for everybody else."""
    with transaction.atomic(savepoint=False):
        with connection.cursor() as cursor:
            cursor.execute(_BY_INDEX)
        return count_in_turn(tenant_id, limit)


def take_turn(tenant_id: uuid.UUID) -> None:
    """Others who would submit for the tenant wait until the transaction, which must be open, has ended."""
    with connection.cursor() as cursor:
        cursor.execute(_TURN, [_lock_id(tenant_id)])


def _lock_id(tenant_id: uuid.UUID) -> int:
    """A signed 64-bit number for PostgreSQL's advisory locks; a chance clash only makes two tenants take turns."""
    digest = hashlib.sha256(f"max_queued {tenant_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def share_of(room: int, limit: int) -> int:
    """How many jobs a process may admit without looking again."""
    return min(room, max(room // SHARES, limit // PRECISION, 1))


@dataclass(slots=True)
class Seen:
    """What the last look found, for one limit: `room` for so many. `allowed` may yet be admitted until `ends`; more
    than `room` is refused without another look until `rested`."""

    limit: int
    room: int
    allowed: int
    ends: float
    rested: float


class Ledger:
    """What this process knows of its tenants' queues. Safe to use from many threads."""

    def __init__(self, look: Look = count_queued, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        # One look at a tenant at a time: who waits for it uses what it saw.
        self._turns = [threading.Lock() for _ in range(64)]
        self._seen: OrderedDict[uuid.UUID, Seen] = OrderedDict()

    def admit(self, tenant_id: uuid.UUID, limit: int, count: int) -> bool:
        """Whether `count` jobs more may be queued; counts at most once."""
        known = self._known(tenant_id, limit, count)
        if known is None:
            with self._turns[hash(tenant_id) % len(self._turns)]:
                known = self._known(tenant_id, limit, count)
                if known is None:
                    known = self._looked(tenant_id, limit, count, self._look)
        return known

    def admit_exactly(self, tenant_id: uuid.UUID, limit: int, count: int) -> bool:
        """The same for a caller whose transaction then holds the tenant's turn until the jobs are committed."""
        if self._refused_lately(tenant_id, limit, count):
            return False
        take_turn(tenant_id)
        return self._looked(tenant_id, limit, count, count_in_turn)

    def admit_some(self, tenant_id: uuid.UUID, limit: int, count: int) -> int:
        """As many of `count` as there is room for by the last look."""
        if self.admit(tenant_id, limit, count):
            return count
        with self._lock:
            seen = self._seen.get(tenant_id)
            if seen is None or seen.limit != limit:
                return 0
            room = max(0, min(seen.room, count))
            self._seen[tenant_id] = replace(seen, room=seen.room - room, allowed=0)
            return room

    def admit_some_exactly(self, tenant_id: uuid.UUID, limit: int, count: int) -> int:
        """The same for a caller whose transaction then holds the tenant's turn until the jobs are committed."""
        take_turn(tenant_id)
        return max(0, min(count, limit - count_in_turn(tenant_id, limit)))

    def _known(self, tenant_id: uuid.UUID, limit: int, count: int) -> bool | None:
        """The answer, if it is known without a look; a yes is taken off the allowance."""
        with self._lock:
            seen, now = self._seen.get(tenant_id), self._clock()
            if seen is not None and seen.limit == limit and seen.allowed >= count and now < seen.ends:
                seen.allowed -= count
                return True
        return False if self._refused_lately(tenant_id, limit, count) else None

    def _refused_lately(self, tenant_id: uuid.UUID, limit: int, count: int) -> bool:
        with self._lock:
            seen = self._seen.get(tenant_id)
            return seen is not None and seen.limit == limit and seen.room < count and self._clock() < seen.rested

    def _looked(self, tenant_id: uuid.UUID, limit: int, count: int, look: Look) -> bool:
        began = self._clock()
        room = limit - look(tenant_id, limit)
        now = self._clock()
        rested = now + min(REST * (now - began), REST_SECONDS)
        admitted = count <= room
        # In turn, nothing is allowed beyond this: the next one looks for itself.
        allowed = max(share_of(room, limit) - count, 0) if admitted and look is not count_in_turn else 0
        self._remember(tenant_id, Seen(limit, room, allowed, max(now + ALLOWED_SECONDS, rested), rested))
        return admitted

    def _remember(self, tenant_id: uuid.UUID, seen: Seen) -> None:
        with self._lock:
            self._seen[tenant_id] = seen
            self._seen.move_to_end(tenant_id)
            if len(self._seen) > KEPT_TENANTS:
                self._seen.popitem(last=False)


_ledger = Ledger()


def counts_exactly(tenant: Tenant) -> bool:
    """Whether `check_room` must be called within the transaction that stores the jobs."""
    return tenant.max_queued is not None and tenant.max_queued <= EXACT


def check_room(tenant: Tenant, count: int) -> None:
    """Let `count` jobs more of the tenant be queued, or raise TooManyQueued. Without a limit nothing is asked."""
    limit = tenant.max_queued
    if limit is None:
        return
    admit = _ledger.admit_exactly if counts_exactly(tenant) else _ledger.admit
    if not admit(tenant.id, limit, count):
        raise _refusal(tenant, limit)


def take_room(tenant: Tenant, count: int) -> int:
    """Let as many as may of `count` jobs more be queued, and return how many. Raises TooManyQueued where none may."""
    limit = tenant.max_queued
    if limit is None or not count:
        return count
    admit = _ledger.admit_some_exactly if counts_exactly(tenant) else _ledger.admit_some
    room = admit(tenant.id, limit, count)
    if not room:
        raise refusal_of(tenant)
    return room


def refusal_of(tenant: Tenant) -> TooManyQueued:
    """What a tenant is told whose queue is full."""
    return _refusal(tenant, tenant.max_queued or 0)


def _refusal(tenant: Tenant, limit: int) -> TooManyQueued:
    said = f"At most {limit:,} jobs of this tenant may be queued."
    if tenant.paused:
        return TooManyQueued(
            f"{said} The tenant is paused, so none starts: cancel some, or ask the operator.",
            retry_after=PAUSED_RETRY_SECONDS,
        )
    return TooManyQueued(f"{said} Wait until some have started, or cancel some.", retry_after=RETRY_SECONDS)

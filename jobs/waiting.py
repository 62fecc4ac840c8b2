"""Why a queued job is not running. Pure: `explain` decides by the row and by what was read of its surroundings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from jobs.models import Job
from jobs.states import State


class WaitingOn(StrEnum):
    """What a queued job waits for. A job that is not due yet says so first; see `explain` for the order of the rest."""

    RUN_AT = "run_at"  # the time that the caller gave
    RETRY_BACKOFF = "retry_backoff"  # the time after a failed attempt
    TENANT_PAUSED = "tenant_paused"  # an operator, to resume the tenant
    HOST_PAUSED = "host_paused"  # an operator, to resume the host
    HOST_BLOCKED = "host_blocked"  # the time that the host asked for by Retry-After, or after refusing requests
    TENANT_LIMIT = "tenant_limit"  # the end of one of the tenant's running jobs: it is at its max_running
    HOST_RATE = "host_rate"  # its turn at the host, which is asked only so often and over so many connections
    FAIR_SHARE = "fair_share"  # its tenant's turn: the pool is full, and other tenants have work too
    POOL_BUSY = "pool_busy"  # a free slot in the pool


MEANINGS: Final = {
    WaitingOn.RUN_AT: "its `run_at` has not come",
    WaitingOn.RETRY_BACKOFF: "an attempt failed, and the wait before the next has not passed",
    WaitingOn.TENANT_PAUSED: "the operator has paused the tenant",
    WaitingOn.HOST_PAUSED: "the operator has paused the host",
    WaitingOn.HOST_BLOCKED: "the host asked not to be called before a time",
    WaitingOn.TENANT_LIMIT: "as many of the tenant's jobs are running as may",
    WaitingOn.HOST_RATE: "the host is called only so often, and over so many connections at once",
    WaitingOn.FAIR_SHARE: "all slots are taken, and it is other tenants' turn before",
    WaitingOn.POOL_BUSY: "it is the next for a free slot, or nothing else is known",
}

_PUT_BACK: Final = frozenset({WaitingOn.HOST_RATE, WaitingOn.HOST_BLOCKED, WaitingOn.HOST_PAUSED})


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known beside the row. The last five are the dispatcher's own word, empty when it is too old."""

    tenant_paused: bool = False
    host_paused: bool = False
    blocked_until: datetime | None = None
    host_reason: str = ""
    host_until: datetime | None = None
    tenant_reason: str = ""
    window_full: bool = False
    waiting_tenants: int = 0


NOTHING: Final = Facts()


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a job waits for (None unless it is queued), and the time before which it cannot start; None: nobody knows,
    since it waits for a person."""

    on: WaitingOn | None
    eligible_at: datetime | None


def explain(job: Job, facts: Facts, *, now: datetime) -> Waiting:
    """Why the job is not running at `now`, by the database's clock."""
    if job.state != State.QUEUED:
        return Waiting(None, job.eligible_at)
    on = _reason(job, facts, now)
    if (on == WaitingOn.TENANT_PAUSED and facts.tenant_paused) or (on == WaitingOn.HOST_PAUSED and facts.host_paused):
        return Waiting(on, None)
    known = [facts.blocked_until, facts.host_until if on == WaitingOn.HOST_RATE else None]
    return Waiting(on, max([job.eligible_at, *(time for time in known if time is not None)]))


def _reason(job: Job, facts: Facts, now: datetime) -> WaitingOn:
    if job.eligible_at > now:
        return _not_due(job)
    if job.published_at is not None:
        return WaitingOn.POOL_BUSY
    return _held(facts, now) or _in_line(facts)


def _not_due(job: Job) -> WaitingOn:
    if job.reason in _PUT_BACK:
        return WaitingOn(job.reason)
    by_wish = job.run_at is not None and job.run_at >= job.eligible_at
    return WaitingOn.RUN_AT if by_wish else WaitingOn.RETRY_BACKOFF


def _held(facts: Facts, now: datetime) -> WaitingOn | None:
    """What keeps the job back however empty the pool is, the most lasting first. Of pauses and blocks the rows know
    more than a report that is some seconds old."""
    if facts.tenant_paused:
        return WaitingOn.TENANT_PAUSED
    if facts.host_paused:
        return WaitingOn.HOST_PAUSED
    if facts.blocked_until is not None and facts.blocked_until > now:
        return WaitingOn.HOST_BLOCKED
    if facts.tenant_reason == WaitingOn.TENANT_LIMIT:
        return WaitingOn.TENANT_LIMIT
    return WaitingOn.HOST_RATE if facts.host_reason == WaitingOn.HOST_RATE else None


def _in_line(facts: Facts) -> WaitingOn:
    others = facts.window_full and facts.waiting_tenants > 1
    return WaitingOn.FAIR_SHARE if others else WaitingOn.POOL_BUSY

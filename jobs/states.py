"""The states of a job and the moves between them. Pure data: `transitions.py` moves, a trigger guards."""

from __future__ import annotations

from django.db import models


class State(models.TextChoices):
    """Where a job stands; the comment names who takes it out of that state."""

    QUEUED = "queued"  # a worker (claim), or the caller (cancel)
    RUNNING = "running"  # the worker (finish, retry, release, cancelled midway), or the sweeper (lease ran out)
    SUCCEEDED = "succeeded"  # nobody
    FAILED = "failed"  # the caller (retry), or an operator (redrive)
    CANCELLED = "cancelled"  # the caller (retry)


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})

ALLOWED: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED}),
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.QUEUED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset({State.QUEUED}),
    State.CANCELLED: frozenset({State.QUEUED}),
}

assert set(ALLOWED) == set(State), "every state says where it may go"  # noqa: S101
assert all(ALLOWED[state] <= {State.QUEUED} for state in FINAL), "an end is left by a new start alone"  # noqa: S101


class Priority(models.IntegerChoices):
    """How urgent a job is; stored as a number so that indexes order it."""

    HIGH = 1, "high"
    NORMAL = 2, "normal"
    LOW = 3, "low"


class Outcome(models.TextChoices):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LEASE_EXPIRED = "lease_expired"
    RELEASED = "released"  # given back at shutdown; does not use up an attempt

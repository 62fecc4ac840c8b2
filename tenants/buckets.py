"""A token bucket as arithmetic: no clock, no store.

It holds at most one second's worth. Taking more than that at once asks for a full bucket and leaves it in debt, so that
a batch of any size can be had and the rate is kept over time: in no span of t seconds do more jobs pass than
rate + rate x t, beside the one batch that made the debt.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """`tokens` (negative: a debt) were in the bucket at `at`, in seconds by the caller's clock."""

    tokens: float
    at: float


def full(rate: int, *, now: float) -> Level:
    """A bucket that nobody has taken from."""
    return Level(float(rate), now)


def filled(level: Level, rate: int, *, now: float) -> Level:
    """The same bucket later. A rate that was changed meanwhile counts as if it had always been the new one."""
    return Level(min(float(rate), level.tokens + rate * max(0.0, now - level.at)), now)


def taken(level: Level, rate: int, count: int) -> Level | None:
    """The bucket after `count` were taken from it; None where it does not hold enough."""
    return None if level.tokens < min(count, rate) else Level(level.tokens - count, level.at)


def seconds_until(level: Level, rate: int, count: int) -> float:
    """How long until `count` can be taken; 0 when they can be now."""
    return max(0.0, (min(count, rate) - level.tokens) / rate)

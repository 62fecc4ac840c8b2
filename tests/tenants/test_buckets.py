"""The bucket's arithmetic: never more than a second's worth at once, and the rate over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants import buckets
from tenants.buckets import Level


@given(
    rate=st.integers(1, 50),
    steps=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 5)), min_size=1, max_size=60),
)
def test_no_span_of_time_lets_more_through_than_a_seconds_worth_and_the_rate(
    rate: int, steps: list[tuple[float, int]]
) -> None:
    now, level, passed = 0.0, buckets.full(rate, now=0.0), list[tuple[float, int]]()
    for pause, count in steps:
        now += pause
        level = buckets.filled(level, rate, now=now)
        if (after := buckets.taken(level, rate, count)) is not None:
            level = after
            passed.append((now, count))
    for index, (began, _) in enumerate(passed):
        for end, (ended, largest) in enumerate(passed[index:], start=index):
            through = sum(count for _, count in passed[index : end + 1])
            debt = max(largest - rate, 0)
            assert through <= rate + rate * (ended - began) + debt + 1e-6


@given(rate=st.integers(1, 1000), tokens=st.floats(-1000, 1000), count=st.integers(1, 10_000))
def test_whoever_waits_as_told_gets_what_was_refused(rate: int, tokens: float, count: int) -> None:
    level = Level(min(tokens, rate), 0.0)
    wait = buckets.seconds_until(level, rate, count)
    later = buckets.filled(level, rate, now=wait + 1e-6)
    assert buckets.taken(later, rate, count) is not None
    assert (wait == 0) == (buckets.taken(level, rate, count) is not None)


def test_a_batch_over_a_seconds_worth_leaves_a_debt_that_is_paid_off() -> None:
    level = buckets.taken(buckets.full(10, now=0.0), 10, 100)
    assert level == Level(-90.0, 0.0)
    assert buckets.seconds_until(level, 10, 1) == pytest.approx(9.1)


def test_a_rate_that_was_raised_pays_a_debt_faster() -> None:
    assert buckets.filled(Level(-90.0, 0.0), 100, now=1.0).tokens == pytest.approx(10.0)

"""When a delivery is tried again."""

from __future__ import annotations

import pytest

from webhooks.schedule import DELAYS, JITTER, next_delay

HOUR = 3600


def test_the_schedule_is_the_contracts() -> None:
    hours = [delay / HOUR for delay in DELAYS[4:]]
    assert DELAYS[:4] == (0, 5, 300, 1800)
    assert hours == [2, 5, 10, 14, 20, 24]


@pytest.mark.parametrize("tries", range(1, 10))
def test_jitter_only_lengthens_a_delay_and_only_a_little(tries: int) -> None:
    drawn = [next_delay(tries, draw=draw, retry_after=None) for draw in (0.0, 0.999)]
    assert drawn[0] == DELAYS[tries]
    assert drawn[1] == pytest.approx(DELAYS[tries] * (1 + JITTER), rel=0.01)


def test_after_the_tenth_try_there_is_no_other() -> None:
    assert next_delay(9, draw=0.0, retry_after=None) == 24 * HOUR
    assert next_delay(10, draw=0.0, retry_after=1.0) is None


def test_retry_after_lengthens_and_never_shortens() -> None:
    assert next_delay(1, draw=0.0, retry_after=60.0) == 60.0
    assert next_delay(2, draw=0.0, retry_after=60.0) == 300.0

"""The retry planner: a pure function of what happened and a draw."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.error_codes import PERMANENT, TEMPORARY, is_known, is_temporary
from jobs.retries import RETRY_AFTER_CAP_SECONDS, Backoff, may_repeat, parse_retry_after, retry_delay

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
BACKOFF = Backoff(base_seconds=1.0, cap_seconds=300.0)
CASES = json.loads((Path(__file__).parent.parent / "cases" / "retry_after_cases.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["value"]))
def test_retry_after_cases(case: dict[str, Any]) -> None:
    expected = RETRY_AFTER_CAP_SECONDS if case["seconds"] == "cap" else case["seconds"]
    assert parse_retry_after(case["value"], now=NOW) == expected


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("\t7", 7),
        ("007", 7),
        ("0000000000120", 120),
        ("0" * 5000, 0),
        ("1" + "0" * 5000, RETRY_AFTER_CAP_SECONDS),
        ("-1", None),
        ("5 ", 5),
        ("5s", None),
        ("0x10", None),
        ("1e3", None),
        ("٣", None),
        ("５", None),
        ("\x0b5", None),
        ("5\n", None),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30),
        ("Sunday, 29-Nov-26 12:00:30 GMT", 30),
        ("Sun Nov 29 12:00:30 2026", 30),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Sun, 29 Nov 2026 12:00:30 +0000", None),
        ("Sun, 29 Nov 2026 12:00:30", None),
        ("Sun, 31 Feb 2027 12:00:30 GMT", None),
        ("29 Nov 2026 12:00:30 GMT", None),
        (None, None),
    ],
)
def test_more_retry_after_values(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, now=NOW) == seconds


@given(st.text())
def test_any_retry_after_is_nothing_or_within_bounds(value: str) -> None:
    seconds = parse_retry_after(value, now=NOW)
    assert seconds is None or 0 <= seconds <= RETRY_AFTER_CAP_SECONDS


@given(
    attempt=st.integers(1, 9),
    draw=st.floats(0, 1, exclude_max=True),
    retry_after=st.none() | st.floats(0, RETRY_AFTER_CAP_SECONDS),
)
def test_a_delay_stays_between_retry_after_and_the_ceiling(
    attempt: int, draw: float, retry_after: float | None
) -> None:
    delay = retry_delay(
        "http_503", attempt=attempt, max_attempts=10, retry_after=retry_after, draw=draw, backoff=BACKOFF
    )
    assert delay is not None
    assert (retry_after or 0.0) <= delay <= max(BACKOFF.ceiling(attempt), retry_after or 0.0)


def test_full_jitter_draws_from_zero_to_a_doubling_ceiling() -> None:
    assert [BACKOFF.ceiling(attempt) for attempt in (1, 2, 3, 9, 10)] == [1.0, 2.0, 4.0, 256.0, 300.0]
    delays = [
        retry_delay("read_timeout", attempt=3, max_attempts=5, retry_after=None, draw=draw, backoff=BACKOFF)
        for draw in (0.0, 0.5, 0.999)
    ]
    assert delays == [0.0, 2.0, pytest.approx(3.996)]


def test_it_gives_up_when_attempts_are_used_up_or_the_error_is_permanent() -> None:
    def delay(code: str, attempt: int) -> float | None:
        return retry_delay(code, attempt=attempt, max_attempts=3, retry_after=5.0, draw=0.5, backoff=BACKOFF)

    assert delay("http_503", 2) == 5.0
    assert delay("http_503", 3) is None
    assert delay("http_404", 1) is None
    assert delay("blocked_target", 1) is None


@pytest.mark.parametrize("code", sorted(TEMPORARY))
def test_temporary_codes(code: str) -> None:
    assert is_temporary(code)
    assert is_known(code)


@pytest.mark.parametrize("code", [*sorted(PERMANENT), "http_404", "http_401", "http_999", "http_302", "http_501"])
def test_permanent_codes(code: str) -> None:
    assert not is_temporary(code)
    assert is_known(code)


def test_a_code_nobody_was_told_of_is_unknown() -> None:
    assert not is_known("oops")
    assert not is_known("http_20")


@pytest.mark.parametrize(
    ("method", "sent", "unsafe", "answer"),
    [
        ("GET", True, False, True),
        ("DELETE", True, False, True),
        ("POST", True, False, False),
        ("PATCH", True, False, False),
        ("POST", False, False, True),
        ("POST", True, True, True),
    ],
)
def test_what_may_be_repeated(method: str, sent: bool, unsafe: bool, answer: bool) -> None:
    assert may_repeat(method, request_sent=sent, retry_unsafe=unsafe) is answer

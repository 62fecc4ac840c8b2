"""When to try again. Pure: knows no clock, no database and no random source; the caller passes what they said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from jobs.error_codes import is_temporary

RETRY_AFTER_CAP_SECONDS: Final = 24 * 3600.0
SAFE_TO_REPEAT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110, 9.2.2, less TRACE

_DELAY_SECONDS = re.compile(r"[0-9]+")
_HTTP_DATES = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: a delay is drawn from 0 to `base_seconds` x 2^(attempt - 1), capped."""

    base_seconds: float
    cap_seconds: float

    def ceiling(self, attempt: int) -> float:
        """The longest delay, in seconds, after attempt number `attempt` (from 1)."""
        return min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 60))


def retry_delay(
    code: str, *, attempt: int, max_attempts: int, retry_after: float | None, draw: float, backoff: Backoff
) -> float | None:
    """Seconds until the next attempt, or None to give up.

    `attempt` counts those used up, this one included; `draw` is uniform in [0, 1); a target's `retry_after` (seconds)
    is a floor, never a shortcut.
    """
    if not is_temporary(code) or attempt >= max_attempts:
        return None
    return max(draw * backoff.ceiling(attempt), retry_after or 0.0)


def may_repeat(method: str, *, request_sent: bool, retry_unsafe: bool) -> bool:
    """Whether a request may be sent again: a POST or PATCH that may have reached the target acts twice if repeated."""
    return method in SAFE_TO_REPEAT or not request_sent or retry_unsafe


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds that a Retry-After header means (RFC 9110, 10.2.3), capped; None when there is none or it is not valid.

    Delay-seconds are ASCII digits alone; dates are the three formats of RFC 9110, 5.6.7, and one in the past means 0.
    """
    text = (value or "").strip(" \t")
    if _DELAY_SECONDS.fullmatch(text):
        digits = text.lstrip("0") or "0"
        return RETRY_AFTER_CAP_SECONDS if len(digits) > 9 else min(float(digits), RETRY_AFTER_CAP_SECONDS)
    moment = _http_date(text, now)
    if moment is None:
        return None
    return min(max((moment - now).total_seconds(), 0.0), RETRY_AFTER_CAP_SECONDS)


def _http_date(text: str, now: datetime) -> datetime | None:
    for form in _HTTP_DATES:
        try:
            moment = datetime.strptime(" ".join(text.split()), form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if "%y" in form and (moment.year - now.year) > 50:
            moment = moment.replace(year=moment.year - 100)  # RFC 9110, 5.6.7: more than 50 years ahead means the past
        return moment
    return None

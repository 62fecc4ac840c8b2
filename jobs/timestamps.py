"""Times as callers write and read them: RFC 3339, answers always in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from core.encoding import rfc3339

_RFC3339: Final = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<minute>[0-9]{2}:[0-9]{2}):(?P<second>[0-9]{2})(?P<part>\.[0-9]{1,9})?"
    r"(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


def read_time(text: str) -> datetime:
    """The instant that `text` names, in UTC. Raises ValueError with a sentence for the caller.

    A leap second (`:60`) is the second after it; more than six decimals are cut to microseconds.
    """
    parts = _RFC3339.fullmatch(text)
    if parts is None:
        raise ValueError("Not a time as RFC 3339 writes it, such as 2027-01-31T08:00:00Z.")
    if parts["zone"] is None:
        raise ValueError("The time has no zone; end it with Z or an offset such as +01:00.")
    leap = parts["second"] == "60"
    zone = "+00:00" if parts["zone"] in "Zz" else parts["zone"]
    plain = f"{parts['day']}T{parts['minute']}:{'59' if leap else parts['second']}{(parts['part'] or '')[:7]}{zone}"
    try:
        moment = datetime.fromisoformat(plain).astimezone(UTC)
        return moment + timedelta(seconds=1) if leap else moment
    except (ValueError, OverflowError):
        raise ValueError("There is no such time.") from None


def rfc3339_or_none(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)

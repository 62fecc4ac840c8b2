"""How values are written as JSON: always valid, always UTF-8, times in RFC 3339 UTC."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.utils.functional import Promise


def to_json(data: Any, *, indent: int | None = None) -> bytes:
    """`data` as JSON, compact unless indented for people.

    What JSON cannot hold (NaN, half a surrogate pair) never makes the answer invalid.
    """
    try:
        text = _encode(data, indent)
    except ValueError:
        text = _encode(_without_nan(data), indent)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def to_json_body(data: Any, *, indent: int | None = None) -> bytes:
    """`data` as the body of an answer: it ends its line, or a terminal would show the prompt right behind it."""
    return to_json(data, indent=indent) + b"\n"


def _encode(data: Any, indent: int | None) -> str:
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(data, default=_plain, ensure_ascii=False, allow_nan=False, separators=separators, indent=indent)


def rfc3339(moment: dt.datetime) -> str:
    """`moment` (aware) in UTC, always with microseconds, so that texts sort as times do."""
    return moment.astimezone(dt.UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _plain(value: Any) -> Any:
    """What the JSON encoder does not know; raises TypeError for what has no form in JSON."""
    match value:
        case dt.datetime():
            return rfc3339(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case uuid.UUID() | Decimal() | Promise():
            return str(value)
        case dt.timedelta():
            return value.total_seconds()
        case Mapping():
            return dict(value)
        case Iterable() if not isinstance(value, bytes | bytearray | memoryview):
            return list(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value

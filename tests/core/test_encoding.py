"""JSON out is always JSON."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

import pytest
from django.utils.functional import lazystr

from core.encoding import to_json, to_json_body

CET = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": [1, True, None, 1.5]}, b'{"a":[1,true,null,1.5]}'),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=CET), b'"2026-01-02T02:04:05.000000Z"'),
        (dt.date(2026, 1, 2), b'"2026-01-02"'),
        (dt.timedelta(seconds=1.5), b"1.5"),
        (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), b'"1.10"'),
        (lazystr("soft"), b'"soft"'),
        ({1}, b"[1]"),
        ("\u00e9\u2028\U0001f600", '"\u00e9\u2028\U0001f600"'.encode()),
        ([float("nan"), float("inf"), {"x": -float("inf")}], b'[null,null,{"x":null}]'),
        ("a\ud800b", b'"a?b"'),
        ("\0", b'"\\u0000"'),
    ],
)
def test_values_are_written_as(value: object, written: bytes) -> None:
    assert to_json(value) == written
    json.loads(written)


def test_a_body_ends_its_line() -> None:
    assert to_json_body({"a": 1}) == b'{"a":1}\n'


def test_bytes_have_no_form_in_json() -> None:
    with pytest.raises(TypeError):
        to_json(b"abc")

"""What counts as JSON, and what happens to the rest."""

from __future__ import annotations

import contextlib
import io
import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import MalformedRequest, PayloadTooLarge
from core.parsers import parse_json, read_body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=5)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@given(JSON, st.booleans())
def test_what_python_writes_is_read_back(value: object, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_malformed_request(data: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        json.dumps(parse_json(data))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":', "line 1, column 6"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1} {"b": 2}', "Extra data"),
        (b"[1,]", "not JSON"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "too large"),
        (b"[-1e999]", "too large"),
        (b"[" + b"9" * 65 + b"]", "64 digits"),
        (b"9" * 100_000, "64 digits"),
        (b'"\xff"', "UTF-8 (byte 1)"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b'"\xc0\x80"', "UTF-8"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'["\\udc00\\ud800"]', "surrogate"),
        (b'[[["\\u0000"]]]', "NUL"),
        (b'{"\\u0000": 1}', "NUL"),
        (b'"\x00"', "not JSON"),
        (b'"\n"', "not JSON"),
        (b'{"a": 1, "b": 2, "a": 3}', '"a" twice'),
        (b'{"x": [{"a": 1, "\\u0061": 2}]}', '"a" twice'),
        (b"[" * 65 + b"]" * 65, "64 levels"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "64 levels"),
        (b"[" * 100_000 + b"]" * 100_000, "64 levels"),
        (b"[" * 100_000, "64 levels"),
        (b'{"a":' * 100_000, "64 levels"),
    ],
)
def test_what_readers_could_take_differently_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        parse_json(body)
    assert said in caught.value.detail


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 64 + b"]" * 64,
        b'{"a": "' + b"[" * 1000 + b'"}',
        b'{"a": "\\"' + b"[{" * 1000 + b'\\\\"}',
        b"[" + b",".join(b"[]" for _ in range(1000)) + b"]",
        b'"\\ud83d\\ude00"',
        b'"\\\\ud800"',
        b'{"a": 1e308, "b": -0.0, "c": 1E-999}',
        b"9" * 64,
    ],
)
def test_what_is_deep_or_odd_only_at_first_sight_is_read(body: bytes) -> None:
    assert parse_json(body) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        b'"' + b'\\"' * 500_000,
        b'["' + b"[" * 1_000_000,
        b"[" + b"[]," * 340_000 + b"[]]",
        b'"' * 1_000_000,
        b"\\" * 1_000_000,
        b"[" * 1_000_000,
        b'"\\u0061' * 100_000,
        b'{"a":' * 200_000,
    ],
)
def test_no_body_of_a_mebibyte_takes_long_or_much(body: bytes) -> None:
    tracemalloc.start()
    started = time.process_time()
    with contextlib.suppress(MalformedRequest):
        parse_json(body)
    spent = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert spent < 5.0
    assert peak < 64 * 1024 * 1024


def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    stream = io.BytesIO(b"x" * 100)
    with pytest.raises(PayloadTooLarge):
        read_body(stream, declared="100", max_bytes=99)
    assert stream.tell() == 0


def test_a_body_of_undeclared_length_is_read_to_the_limit_only() -> None:
    stream = io.BytesIO(b"x" * 1000)
    with pytest.raises(PayloadTooLarge):
        read_body(stream, declared=None, max_bytes=99)
    assert stream.tell() == 100


def test_a_body_that_ends_early_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="after 3 of 10 bytes"):
        read_body(io.BytesIO(b"abc"), declared="10", max_bytes=99)


def test_a_body_at_the_limit_is_read() -> None:
    assert read_body(io.BytesIO(b"x" * 99), declared="99", max_bytes=99) == b"x" * 99

"""Many values in one body: each by itself, whatever is wrong with its neighbours."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import MalformedRequest, PayloadTooLarge, ServiceError, ValidationFailed
from core.json_rows import Row, Rows
from tests.core.test_parsers import JSON

LIMIT = 1024 * 1024


def array(data: bytes, row_bytes: int = LIMIT) -> list[Row]:
    return list(Rows(data, lines=False, row_bytes=row_bytes))


def lines(data: bytes, row_bytes: int = LIMIT) -> list[Row]:
    return list(Rows(data, lines=True, row_bytes=row_bytes))


@settings(max_examples=50)
@given(st.lists(JSON, max_size=8), st.booleans(), st.sampled_from([None, 2]))
def test_an_array_is_read_as_python_wrote_it(values: list[object], ascii_only: bool, indent: int | None) -> None:
    data = json.dumps(values, ensure_ascii=ascii_only, indent=indent).encode()
    assert [row.value for row in array(data)] == values


@settings(max_examples=50)
@given(st.lists(JSON, max_size=8), st.booleans())
def test_lines_are_read_as_python_wrote_them(values: list[object], ascii_only: bool) -> None:
    data = "\r\n\n".join(json.dumps(value, ensure_ascii=ascii_only) for value in values).encode()
    assert [row.value for row in lines(data)] == values


@pytest.mark.parametrize("size", [65_530, 65_531, 65_532, 65_533, 65_534, 65_535, 65_536, 131_080])
@pytest.mark.parametrize("value", ["é☃😀", '\\"', -12345.5e10, True, {"a": [None]}])
def test_values_that_lie_across_two_pieces_are_whole(size: int, value: object) -> None:
    values = ["x" * (size - 10), value, value]
    assert [row.value for row in array(json.dumps(values, ensure_ascii=False).encode())] == values


def test_a_value_much_longer_than_a_piece_is_whole() -> None:
    values = ["x" * 900_000, {"y": "é" * 100_000}, 1]
    assert [row.value for row in array(json.dumps(values, ensure_ascii=False).encode())] == values


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf[]", "byte order mark"),
        (b"[", "row 0"),
        (b"[1", "row 0"),
        (b"[1,", "row 1"),
        (b"[1,]", "row 1"),
        (b"[1 2]", "row 0"),
        (b"[1]]", "follows"),
        (b"[1] x", "follows"),
        (b'["a', "row 0"),
        (b'["a\nb"]', "row 0"),
        (b'[{"a":1,}]', "row 0"),
        (b"[tru", "row 0"),
        (b'["\xff"]', "UTF-8"),
        (b'["\xe2\x98"', "UTF-8"),
        (b"[" * 100_000, "deeply"),
        (b"{", "not JSON"),
    ],
)
def test_a_broken_array_is_malformed_as_a_whole(body: bytes, said: str) -> None:
    with pytest.raises(MalformedRequest, match=said):
        array(body)


def test_a_broken_row_is_named_however_much_follows() -> None:
    with pytest.raises(MalformedRequest, match="row 1"):
        array(b'[1,{"a":},' + b'"x",' * 100_000 + b"1]")


@pytest.mark.parametrize("body", [b"{}", b'"a"', b"1", b"null"])
def test_what_is_no_array_is_not_valid(body: bytes) -> None:
    with pytest.raises(ValidationFailed):
        array(body)


FAULTS = [
    ("NaN", "NaN"),
    ("[-Infinity]", "-Infinity"),
    ('{"a":1,"a":2}', "twice"),
    ('"\\ud800"', "surrogate"),
    ('"\\u0000"', "NUL"),
    ("[" * 65 + "]" * 65, "levels deep"),
    ("1e999", "too large"),
    ("9" * 65, "digits"),
]


@pytest.mark.parametrize(("wrong", "said"), FAULTS)
def test_what_is_wrong_with_one_row_is_told_of_that_row(wrong: str, said: str) -> None:
    for rows in (array(f"[1,{wrong},2]".encode()), lines(f"1\n{wrong}\n2".encode())):
        assert [row.value for row in rows] == [1, None, 2]
        assert [row.error is None for row in rows] == [True, False, True]
        assert said in str(rows[1].error)


def test_a_broken_line_is_that_line_only() -> None:
    rows = lines(b'1\n{"a\n"\xff"\n\xef\xbb\xbf2\n3')
    assert [row.value for row in rows] == [1, None, None, None, 3]
    assert {type(row.error) for row in rows[1:4]} == {MalformedRequest}


def test_a_row_over_its_size_is_refused() -> None:
    rows = lines(b'"' + b"x" * 100 + b'"\n1', row_bytes=50)
    assert [type(row.error) for row in rows] == [PayloadTooLarge, type(None)]
    for body in (b'[1,"' + b"x" * 100 + b'",2]', b'[1,"' + b"x" * 1_000_000 + b'",2]'):
        with pytest.raises(PayloadTooLarge, match="Row 1"):
            array(body, row_bytes=50)


@pytest.mark.parametrize("piece", [b"[],", b'{"a":[[[]]]},'])
def test_a_large_body_never_stands_in_memory_as_objects(piece: bytes) -> None:
    body = b"[" + piece * (LIMIT // 4 // len(piece)) + b"1]"
    tracemalloc.start()
    count = sum(1 for _ in Rows(body, lines=False, row_bytes=LIMIT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count > 10_000
    assert peak < LIMIT  # as objects the smallest of them would take 5 MiB


def test_blank_lines_cost_nothing() -> None:
    assert lines(b"\n \r\n" * 100_000) == []


def test_any_error_is_one_that_is_told_to_the_caller() -> None:
    for body in (b"[\\", b'["\\x"]', b'[{"a" 1}]', b"[0x1]", b"[01]", b"[+1]", b"[.5]", b"[1.]", b"['a']", b"[,1]"):
        with pytest.raises(ServiceError):
            array(body)

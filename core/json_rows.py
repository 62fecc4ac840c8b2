"""Many JSON values in one body, one after the other: an array (RFC 8259) or lines (NDJSON).

Each value is read and given out by itself, so that a body of 32 MiB never stands in memory as objects, and what is
wrong with one value is told of that value. What breaks the array itself leaves no way to tell its values apart, and is
raised.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, Any, ClassVar, Final

from rest_framework.parsers import BaseParser

from core.errors import MalformedRequest, PayloadTooLarge, ServiceError, ValidationFailed
from core.parsers import check_value, decoder, parse_json, read_body

_READ_BYTES: Final = 64 * 1024
_LONGEST_WORD: Final = len("-Infinity") + 1
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")  # blank lines cost no more than their bytes


class NoArray(ValidationFailed):
    """The body is JSON, and no array."""

    status: ClassVar[HTTPStatus] = HTTPStatus.UNPROCESSABLE_ENTITY
    default_detail: ClassVar[str] = "Must be a JSON array."


@dataclass(frozen=True, slots=True)
class Row:
    """One value, or what is wrong with it; `raw` is how it was written."""

    raw: str | bytes
    value: Any = None
    error: ServiceError | None = None


class Rows:
    """The rows of one body, read as they are iterated over. Iterating raises MalformedRequest or PayloadTooLarge for
    what concerns the body as a whole."""

    def __init__(self, data: bytes, *, lines: bool, row_bytes: int) -> None:
        self._data = data
        self._lines = lines
        self._row_bytes = row_bytes

    def __iter__(self) -> Iterator[Row]:
        if self._lines:
            return _lines(self._data, self._row_bytes)
        return _ArrayReader(self._data, self._row_bytes).rows()


class RowsParser(BaseParser):
    """`application/json`: an array. A call sets how much a body and one row may have."""

    media_type = "application/json"
    lines: ClassVar[bool] = False
    body_bytes: ClassVar[int]
    row_bytes: ClassVar[int]

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> Any:
        """The `Rows`; raises MalformedRequest or PayloadTooLarge."""
        declared = parser_context["request"].META.get("CONTENT_LENGTH") if parser_context else None
        data = read_body(stream, declared=declared, max_bytes=self.body_bytes)
        return Rows(data, lines=self.lines, row_bytes=self.row_bytes)


def _lines(data: bytes, row_bytes: int) -> Iterator[Row]:
    for found in _LINE.finditer(data):
        raw = found[0]
        if len(raw) > row_bytes:
            yield Row(raw, error=_row_too_large(row_bytes))
            continue
        try:
            value = parse_json(raw)
        except MalformedRequest as error:
            yield Row(raw, error=error)
        else:
            yield Row(raw, value)


class _ArrayReader:
    """Holds a piece of the body as text, never much more than one row of it."""

    def __init__(self, data: bytes, row_bytes: int) -> None:
        self._data = data
        self._row_bytes = row_bytes
        self._read = 0  # bytes of the body that are in the text, or were
        self._text = ""
        self._at = 0
        self._row = 0
        self._faults: list[MalformedRequest] = []
        self._decoder = decoder(self._faults.append)

    def rows(self) -> Iterator[Row]:
        self._open()
        if self._next_sign() == "]":
            self._close()
            return
        while True:
            yield self._next_row()
            self._row += 1
            sign = self._next_sign()
            if sign == "]":
                self._close()
                return
            if sign != ",":
                raise self._broken("a comma or the array's end is expected after it", row=self._row - 1)
            self._at += 1
            self._next_sign()

    def _open(self) -> None:
        if self._next_sign() != "[":
            parse_json(self._data[: self._row_bytes])  # tells what is no JSON from what is no array
            raise NoArray
        self._at += 1

    def _close(self) -> None:
        self._at += 1
        if self._next_sign():
            raise MalformedRequest("The body is not JSON: something follows the array.")

    def _next_sign(self) -> str:
        """The next character that is no white space; empty at the body's end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _next_row(self) -> Row:
        value, end = self._decoded()
        raw, self._at = self._text[self._at : end], end
        if len(raw) > self._row_bytes:
            raise _row_too_large(self._row_bytes, self._row)
        error = self._faults[0] if self._faults else _fault(value, raw)
        return Row(raw, error=error) if error else Row(raw, value)

    def _decoded(self) -> tuple[Any, int]:
        """The value that begins here, and where it ends."""
        while True:
            self._faults.clear()
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._unread or not _may_be_cut_off(error):
                    raise self._broken(error.msg) from error
            except RecursionError:
                raise self._broken("it is nested too deeply") from None
            else:
                if end < len(self._text) or not self._unread:  # a number may go on behind the text
                    return value, end
            if len(self._text) - self._at > self._row_bytes:
                raise _row_too_large(self._row_bytes, self._row)
            self._fill()

    @property
    def _unread(self) -> bool:
        return self._read < len(self._data)

    def _fill(self) -> bool:
        """Read on, twice as much as is there, and drop what was given out. False at the body's end."""
        if not self._unread:
            return False
        kept = self._text[self._at :]
        piece = self._data[self._read : self._read + max(_READ_BYTES, len(kept))]
        final = self._read + len(piece) == len(self._data)
        try:
            text, used = codecs.utf_8_decode(piece, "strict", final)
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"The body is not UTF-8 (byte {self._read + error.start}).") from error
        self._read += used
        self._text, self._at = kept + text, 0
        return True

    def _broken(self, reason: str, *, row: int | None = None) -> MalformedRequest:
        return MalformedRequest(f"The body is not JSON in row {self._row if row is None else row}: {reason}.")


def _may_be_cut_off(error: json.JSONDecodeError) -> bool:
    """Whether the text behind its end could make it right."""
    return error.msg.startswith("Unterminated string") or error.pos > len(error.doc) - _LONGEST_WORD


def _fault(value: Any, raw: str) -> MalformedRequest | None:
    try:
        check_value(value, raw)
    except MalformedRequest as error:
        return error
    return None


def _row_too_large(row_bytes: int, row: int | None = None) -> PayloadTooLarge:
    which = "A row" if row is None else f"Row {row}"
    return PayloadTooLarge(f"{which} is too large: one job may have at most {row_bytes:,} bytes.")

"""JSON in: exactly RFC 8259 and I-JSON (RFC 7493), within bounds, or a 400 that says where it went wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate
from typing import IO, Any, NoReturn

from django.conf import settings
from django.http import UnreadablePostError
from rest_framework.parsers import BaseParser

from core.errors import MalformedRequest, PayloadTooLarge

_MAX_NUMBER_LENGTH = 64
# Matches from any quote on, closed or not: a pattern that could fail would be tried again at every quote of the body.
_JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class StrictJSONParser(BaseParser):
    """`application/json` of at most `max_bytes`."""

    media_type = "application/json"

    @property
    def max_bytes(self) -> int:
        """The most a body may have; a call with larger bodies overrides this."""
        return int(settings.MAX_REQUEST_BYTES)

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> Any:
        """The value in the body; raises MalformedRequest or PayloadTooLarge."""
        declared = parser_context["request"].META.get("CONTENT_LENGTH") if parser_context else None
        return parse_json(read_body(stream, declared=declared, max_bytes=self.max_bytes))


def read_body(stream: IO[Any], *, declared: str | None, max_bytes: int) -> bytes:
    """The whole body, never more than `max_bytes` of it in memory; `declared` is the Content-Length."""
    expected = int(declared) if declared and declared.isdecimal() else None
    if expected is not None and expected > max_bytes:
        raise _too_large(max_bytes)
    try:
        data: bytes = stream.read(max_bytes + 1)
    except UnreadablePostError as error:
        raise MalformedRequest("The request's body ended too early.") from error
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    if expected is not None and len(data) < expected:
        raise MalformedRequest(f"The request's body ended after {len(data)} of {expected} bytes.")
    return data


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request's body may have at most {max_bytes} bytes.")


def parse_json(data: bytes) -> Any:
    """The value that `data` holds; raises MalformedRequest for anything that another reader could take differently."""
    text = _decoded(data)
    _refuse_deep_nesting(data)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise MalformedRequest(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except RecursionError as error:
        raise MalformedRequest("The body is nested too deeply.") from error
    if "\\u" in text:  # raw NUL and surrogates cannot get here: the decoders refuse them
        _refuse_unstorable_text(value)
    return value


def _decoded(data: bytes) -> str:
    if not data.strip(b" \t\r\n"):
        raise MalformedRequest("The body is empty; JSON is expected.")
    if data.startswith(b"\xef\xbb\xbf"):
        raise MalformedRequest("The body starts with a byte order mark, which JSON does not allow.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"The body is not UTF-8 (byte {error.start}).") from error


def _refuse_deep_nesting(data: bytes) -> None:
    """Looks at the brackets outside strings before anything is built, so that depth costs neither stack nor memory."""
    limit: int = settings.MAX_JSON_DEPTH
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    brackets = _JSON_STRING.sub(b"", data).translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limit:
        raise MalformedRequest(f"The body is nested more than {limit} levels deep.")


def _refuse_unstorable_text(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            _refuse_unstorable_string(item)
        elif isinstance(item, dict):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _refuse_unstorable_string(text: str) -> None:
    if "\0" in text:
        raise MalformedRequest("A string in the body holds a NUL character.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedRequest("A string in the body holds half of a surrogate pair.") from error


def check_value(value: Any, raw: str) -> None:
    """Raises MalformedRequest where `value`, read from `raw`, is too deep or holds text that cannot be stored."""
    if raw.count("[") + raw.count("{") > settings.MAX_JSON_DEPTH:
        _refuse_deep_nesting(raw.encode())
    if "\\u" in raw:
        _refuse_unstorable_text(value)


def _first_duplicate(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return json.dumps(name[:100])
        seen.add(name)
    return "a member"


Report = Callable[[MalformedRequest], None]


def decoder(report: Report) -> json.JSONDecoder:
    """A decoder that reports what is well-formed and still refused, and goes on if `report` returns."""

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            report(MalformedRequest(f"The body names {_first_duplicate(pairs)} twice in one object."))
        return members

    def read_constant(name: str) -> None:
        report(MalformedRequest(f"The body holds {name}, which is not JSON."))

    def read_float(digits: str) -> float:
        value = float(digits)
        if value in (float("inf"), float("-inf")):
            report(MalformedRequest("A number in the body is too large."))
        return value

    def read_int(digits: str) -> int:
        if len(digits) > _MAX_NUMBER_LENGTH:
            report(MalformedRequest(f"A number in the body has more than {_MAX_NUMBER_LENGTH} digits."))
            return 0
        return int(digits)

    return json.JSONDecoder(
        object_pairs_hook=read_object, parse_constant=read_constant, parse_float=read_float, parse_int=read_int
    )


def _raise(error: MalformedRequest) -> NoReturn:
    raise error


_DECODER = decoder(_raise)

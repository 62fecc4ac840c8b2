"""Readers of single JSON values. Each returns the value as the service uses it or raises `Wrong`.

Types are strict: `"5"`, `5.0` and `true` are no integers. Plain functions instead of serializer fields, since they
run for every post and cost a fraction of those.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from core.errors import FieldProblem
from jobs.timestamps import read_time

T = TypeVar("T")
Reader = Callable[[Any], T]

MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_PARAMS: Final = 1000
MAX_TAGS: Final = 10
MAX_TAG_LENGTH: Final = 64

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 5.6.2
_NOT_IN_A_FIELD_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # RFC 9110 5.5
_FORBIDDEN_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer"}
)


class Wrong(Exception):
    """A refused value; the problems' pointers begin at the value itself (`""` is the value as a whole)."""

    def __init__(self, *problems: FieldProblem) -> None:
        super().__init__(problems)
        self.problems = problems

    @classmethod
    def because(cls, detail: str) -> Wrong:
        return cls(FieldProblem("", detail))


def pointer_part(name: str) -> str:
    """One step of a JSON Pointer (RFC 6901), cut where a caller's name is too long to be of use in an answer."""
    shown = name if len(name) <= 200 else f"{name[:200]}…"
    return "/" + shown.replace("~", "~0").replace("/", "~1")


def text(value: Any) -> str:
    if type(value) is not str:
        raise Wrong.because("Must be a string.")
    return value


def flag(value: Any) -> bool:
    if type(value) is not bool:
        raise Wrong.because("Must be true or false.")
    return value


def whole(low: int, high: int) -> Reader[int]:
    """A reader of integers from `low` to `high`."""

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise Wrong.because(f"Must be an integer from {low} to {high}.")
        return value

    return read


def one_of(choices: Mapping[str, T]) -> Reader[T]:
    """A reader of one of the names in `choices`, which stand for its values; spelled exactly so."""
    names = ", ".join(choices)

    def read(value: Any) -> T:
        if type(value) is not str or value not in choices:
            raise Wrong.because(f"Must be one of {names}." if len(choices) > 1 else f"Must be {names}.")
        return choices[value]

    return read


def moment(value: Any) -> datetime:
    try:
        return read_time(text(value))
    except ValueError as error:
        raise Wrong.because(str(error)) from None


def body_text(value: Any) -> bytes:
    return text(value).encode()


def body_base64(value: Any) -> bytes:
    """Standard base64 with its padding (RFC 4648 section 4)."""
    try:
        return base64.b64decode(text(value).encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise Wrong.because("Must be base64 with the standard alphabet and its padding.") from None


def tags(value: Any) -> list[str]:
    if type(value) is not list:
        raise Wrong.because("Must be a list of strings.")
    if len(value) > MAX_TAGS:
        raise Wrong.because(f"Must not hold more than {MAX_TAGS} tags.")
    problems = [
        FieldProblem(f"/{index}", f"Must be a string of 1 to {MAX_TAG_LENGTH} characters.")
        for index, tag in enumerate(value)
        if type(tag) is not str or not 1 <= len(tag) <= MAX_TAG_LENGTH
    ]
    if problems:
        raise Wrong(*problems)
    return value


def params(value: Any) -> dict[str, Any]:
    """Query parameters: a name's value is a scalar or a list of scalars."""
    if type(value) is not dict:
        raise Wrong.because("Must be an object.")
    count = sum(len(item) if type(item) is list else 1 for item in value.values())
    if count > MAX_PARAMS:
        raise Wrong.because(f"Must not hold more than {MAX_PARAMS} values.")
    problems = [
        FieldProblem(pointer_part(name), "Must be a string, a number, true, false, null or a list of these.")
        for name, item in value.items()
        if any(type(scalar) in (dict, list) for scalar in (item if type(item) is list else (item,)))
    ]
    if problems:
        raise Wrong(*problems)
    return value


def headers(value: Any) -> dict[str, str]:
    """Request headers; white space around a value is no part of it (RFC 9110 5.5) and is dropped."""
    if type(value) is not dict:
        raise Wrong.because("Must be an object of strings.")
    if len(value) > MAX_HEADERS:
        raise Wrong.because(f"Must not hold more than {MAX_HEADERS} headers.")
    problems = [
        FieldProblem(pointer_part(name), detail)
        for name, item in value.items()
        if (detail := _name_problem(name) or _value_problem(item))
    ]
    lowered = [name.lower() for name in value]
    if len(set(lowered)) != len(lowered):
        problems.append(FieldProblem("", "Must not name a header twice; upper and lower case do not count."))
    if not problems and sum(len(name) + len(item) for name, item in value.items()) > MAX_HEADER_BYTES:
        problems.append(FieldProblem("", f"Must not be larger than {MAX_HEADER_BYTES} bytes in all."))
    if problems:
        raise Wrong(*problems)
    return {name: item.strip(" \t") for name, item in value.items()}


def _name_problem(name: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        return "Is not a header's name (RFC 9110: letters, digits and !#$%&'*+-.^_`|~)."
    if name.lower() in _FORBIDDEN_HEADERS or name.lower().startswith("proxy-"):
        return "This header is set by the service and cannot be given."
    return None


def _value_problem(value: Any) -> str | None:
    if type(value) is not str:
        return "Must be a string."
    if _NOT_IN_A_FIELD_VALUE.search(value):
        return "Must not contain a line break or another control character."
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return "Must consist of latin-1 characters."
    return None

"""Readers of query parameters: each is given at most once, unknown ones are refused by name (400)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from django.http import QueryDict

from core.errors import FieldProblem, MalformedRequest
from jobs.timestamps import read_time

Reader = Callable[[str], Any]
CURSOR: Final = {"type": "string", "minLength": 1}  # for the OpenAPI document
_DIGITS: Final = re.compile(r"[0-9]{1,9}")  # int() would also take " 7", "+7", "1_0" and other alphabets' digits


class InvalidParameter(MalformedRequest):
    """One or more query parameters are unknown or not valid; `errors` names each."""

    code: ClassVar[str] = "invalid_parameter"
    default_detail: ClassVar[str] = "One or more query parameters are not valid."


def read_parameters(query: QueryDict, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The given parameters' values. Readers raise ValueError with a sentence; all problems are told in one answer."""
    values: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    for name, given in query.lists():
        try:
            values[name] = _read_one(readers.get(name), given)
        except ValueError as error:
            problems.append(FieldProblem(name[:200], str(error)))
    if problems:
        raise InvalidParameter(errors=problems[:100])
    return values


def _read_one(read: Reader | None, given: list[str]) -> Any:
    if read is None:
        raise ValueError("There is no such parameter.")
    if len(given) != 1:
        raise ValueError("Give this parameter once.")
    if "\0" in given[0]:
        raise ValueError("Must not contain a NUL character.")
    return read(given[0])


def whole(low: int, high: int) -> Reader:
    """A reader of plain decimal integers from `low` to `high`."""

    def read(text: str) -> int:
        if not _DIGITS.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(f"Must be an integer from {low} to {high}.")
        return int(text)

    return read


MAX_LIMIT: Final = 1000
DEFAULT_LIMIT: Final = 100
LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}  # as CURSOR
PAGE: Final[dict[str, Reader]] = {"limit": whole(1, MAX_LIMIT), "cursor": str}
"""What every paged list reads beside its filters."""


def one_of(choices: Mapping[str, Any]) -> Reader:
    """A reader of one of the names in `choices`, which stand for its values."""

    def read(text: str) -> Any:
        if text not in choices:
            raise ValueError(f"Must be one of {', '.join(choices)}.")
        return choices[text]

    return read


def moment(text: str) -> datetime:
    if re.fullmatch(r".*[0-9] [0-9]{2}:[0-9]{2}", text):
        raise ValueError("Not a time: in an address a plus sign means a space; write %2B, or the time in UTC with Z.")
    return read_time(text)


def short_text(text: str) -> str:
    if not 1 <= len(text) <= 300:
        raise ValueError("Must be 1 to 300 characters.")
    return text

"""TOML tables read key by key: each wrong value is named by its key (`tenants[2].flow`) and its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, TypeVar

LONGEST_NAME: Final = 60
_HEADER: Final = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"\s*([^=#\[\]{}]+?)\s*=")

Value = Any  # what tomllib makes of a TOML value
Keys = tuple[str | int, ...]  # the keys, and positions in lists, that lead to a value
T = TypeVar("T")


class WrongValue(Exception):
    """What is wrong with the value at `path`."""

    def __init__(self, path: Keys, problem: str) -> None:
        super().__init__(problem)
        self.path = path

    def told(self, text: str) -> str:
        """The problem with its place in the text it was read from."""
        line = line_of(text, self.path)
        return f"{written(self.path)}{f' (line {line})' if line else ''}: {self}"


class Table:
    """A TOML table that is read key by key; what nobody asked for is an error at the end."""

    def __init__(self, values: Mapping[str, Value], path: Keys) -> None:
        self._values = values
        self._path = path
        self._asked: set[str] = set()

    def nothing_else(self) -> None:
        """Raise WrongValue for a key that means nothing here."""
        for key in self._values:
            if key not in self._asked:
                raise WrongValue((*self._path, key), f"unknown; known here: {', '.join(sorted(self._asked))}")

    def one(self, key: str, parse_one: Callable[[Keys, Value], T]) -> T:
        """A value that must be there."""
        found = self.optional(key, parse_one)
        if found is None:
            raise WrongValue((*self._path, key), "is missing")
        return found

    def optional(self, key: str, parse_one: Callable[[Keys, Value], T]) -> T | None:
        """A value, or None where there is none."""
        self._asked.add(key)
        return parse_one((*self._path, key), self._values[key]) if key in self._values else None

    def text(self, key: str, default: str | None = None) -> str:
        """A name or title."""
        return default if default is not None and key not in self._known(key) else self.one(key, as_name)

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """A number within these bounds."""
        if default is not None and key not in self._known(key):
            return default
        return self.one(key, lambda path, value: as_number(path, value, least, most))

    def whole(self, key: str, least: int, most: int, default: int | None = None) -> int:
        """A whole number within these bounds."""
        if default is not None and key not in self._known(key):
            return default
        return self.one(key, lambda path, value: as_whole(path, value, least, most))

    def choice(self, key: str, choices: Mapping[str, T], default: T) -> T:
        """One of a few words."""
        if key not in self._known(key):
            return default
        value = self._values[key]
        if not isinstance(value, str) or value not in choices:
            raise WrongValue((*self._path, key), f"must be one of {', '.join(choices)}, not {shown(value)}")
        return choices[value]

    def items(self, key: str, parse_one: Callable[[Keys, Value], T], most: int) -> list[T]:
        """A list of up to `most` values; empty where there is none."""
        value = self._values.get(key, []) if key in self._known(key) else []
        path = (*self._path, key)
        if not isinstance(value, list):
            raise WrongValue(path, f"must be a list, not {shown(value)}")
        if len(value) > most:
            raise WrongValue(path, f"has {len(value):,} entries; at most {most:,} are allowed")
        return [parse_one((*path, index), each) for index, each in enumerate(value)]

    def tables(self, key: str, parse_one: Callable[[Table], T], most: int) -> list[T]:
        """A list of tables."""
        return self.items(key, lambda path, value: parse_one(as_table(path, value)), most)

    def named_tables(self, key: str, parse_one: Callable[[Table], T], most: int) -> dict[str, T]:
        """Tables by name."""
        path = (*self._path, key)
        found = as_table(path, self._values.get(key, {}) if key in self._known(key) else {})._values
        if len(found) > most:
            raise WrongValue(path, f"has {len(found):,} entries; at most {most:,} are allowed")
        return {
            as_name((*path, name), name): parse_one(as_table((*path, name), value)) for name, value in found.items()
        }

    def _known(self, key: str) -> Mapping[str, Value]:
        self._asked.add(key)
        return self._values


def as_table(path: Keys, value: Value) -> Table:
    """Raises WrongValue, as all the following."""
    if not isinstance(value, dict):
        raise WrongValue(path, f"must be a table, not {shown(value)}")
    return Table(value, path)


def as_name(path: Keys, value: Value) -> str:
    """A short text that can be printed."""
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_NAME or not value.isprintable():
        raise WrongValue(path, f"must be a text of 1 to {LONGEST_NAME} printable characters, not {shown(value)}")
    return value


def as_number(path: Keys, value: Value, least: float, most: float) -> float:
    """A number within these bounds."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not least <= value <= most
        or not isfinite(value)
    ):
        raise WrongValue(path, f"must be a number from {least:,.15g} to {most:,.15g}, not {shown(value)}")
    return float(value)


def as_whole(path: Keys, value: Value, least: int, most: int) -> int:
    """A whole number within these bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise WrongValue(path, f"must be a whole number from {least:,} to {most:,}, not {shown(value)}")
    return value


def shown(value: Value) -> str:
    """A wrong value, as short as a message needs it."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number that large"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def written(path: Keys) -> str:
    """A path as TOML would write it, positions counted from 1."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def line_of(text: str, path: Keys) -> int | None:
    """The line on which the value stands, or the nearest table around it; None if the text does not show it plainly."""
    seen: dict[Keys, int] = {}
    for number, found in _keys_of(text):
        seen.setdefault(found, number)
    return next((seen[path[:size]] for size in range(len(path), 0, -1) if path[:size] in seen), None)


def _keys_of(text: str) -> Iterator[tuple[int, Keys]]:
    """Each header and each key at the beginning of a line, with the number of the line."""
    counts: dict[Keys, int] = {}
    current: Keys = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            current = _opened(_dotted(header[2]), counts, is_list=header[1] == "[[")
            yield number, current
        elif key := _KEY.match(line):
            yield number, (*current, *_dotted(key[1]))


def _opened(keys: Keys, counts: dict[Keys, int], *, is_list: bool) -> Keys:
    """The path of a header; `counts` knows how many tables each list has so far."""
    path: Keys = ()
    for position, key in enumerate(keys, start=1):
        path += (key,)
        if is_list and position == len(keys):
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path += (counts[path] - 1,)
    return path


def _dotted(text: str) -> Keys:
    """`a."b c"` as its keys; none if it is no key, as in the middle of a long string."""
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except ValueError:
        return ()
    keys: list[str] = []
    while isinstance(table, dict):
        key, table = next(iter(table.items()))
        keys.append(key)
    return tuple(keys)

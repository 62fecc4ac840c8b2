"""`manage.py dead_letters`."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from django.core.management.base import CommandParser

from core.commands import ServiceCommand
from core.encoding import rfc3339
from jobs import dead_letters
from jobs.arguments import add_selection, selection_in

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 100_000
_DETAIL_SHOWN: Final = 60  # characters; a terminal's line


class Command(ServiceCommand):
    """Lists the jobs that failed."""

    help = (
        "Lists the jobs that failed, newest first, or with --group what they have in common, the biggest group first. "
        "Exit code 0 whether there are any or not: `doctor` is what judges."
    )
    example = "dead_letters --group --host example.com --json"

    def add_arguments(self, parser: CommandParser) -> None:
        add_selection(parser)
        parser.add_argument("--group", action="store_true", help="Count by host and error instead.")
        parser.add_argument("--limit", type=_limit, default=DEFAULT_LIMIT, metavar="N", help="At most so many.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        selection = selection_in(options)
        if options["group"]:
            return {"groups": list(map(asdict, dead_letters.incidents(selection, options["limit"])))}
        return {"items": list(map(asdict, dead_letters.newest(selection, options["limit"])))}

    def for_people(self, result: Mapping[str, Any]) -> str:
        if not any(result.values()):
            return "No dead letters."
        if "groups" in result:
            return _table(("count", "host", "code", "last at (UTC)"), map(_group_row, result["groups"]))
        return _table(("failed at (UTC)", "id", "tenant", "host", "code", "detail"), map(_item_row, result["items"]))


def _group_row(group: Mapping[str, Any]) -> tuple[str, ...]:
    return f"{group['count']:,}", group["host"], group["code"], _second(group["last_at"])


def _item_row(item: Mapping[str, Any]) -> tuple[str, ...]:
    detail = _shortened(item["detail"])
    return _second(item["finished_at"]), str(item["id"]), item["tenant"], item["host"], item["code"], detail


def _second(moment: datetime) -> str:
    return rfc3339(moment)[:19]


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:12]) <= MAX_LIMIT:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MAX_LIMIT}")
    return int(text)


def _shortened(text: str) -> str:
    """One line of what may be a target's own words: no control character reaches the terminal."""
    plain = "".join(character if character.isprintable() else " " for character in text[: _DETAIL_SHOWN + 1])
    return plain if len(text) <= _DETAIL_SHOWN else f"{plain[: _DETAIL_SHOWN - 1]}…"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lined = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lined, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in lined)
    return "\n".join(line.rstrip() for line in lines)

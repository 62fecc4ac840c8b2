"""Reads the little of Markdown that the checks of the docs need: links, code spans, headings and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$")
CELL_BORDER = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Found:
    """A piece of text and the line it stands on, counted from 1."""

    text: str
    line: int


def pages(root: Path) -> list[Path]:
    """Every Markdown page that belongs to the project, in the order of their names."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def prose(text: str) -> Iterator[Found]:
    """The lines outside fenced blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield Found(line, number)


def blocks(text: str, language: str) -> list[str]:
    """The contents of the fenced blocks of one language."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def links(text: str) -> list[Found]:
    """The targets of links and pictures."""
    return [Found(target, line.line) for line in prose(text) for target in LINK.findall(CODE.sub("", line.text))]


def code_spans(text: str) -> list[Found]:
    return [Found(span, line.line) for line in prose(text) for span in CODE.findall(line.text)]


def anchors(text: str) -> set[str]:
    """The fragments that a forge makes of the headings."""
    titles = [match[1] for line in prose(text) if (match := HEADING.match(line.text))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def section(text: str, title: str) -> str:
    """What stands under a heading, down to the next heading of the same or a higher level. Raises LookupError."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if HEADING.match(line) and line.lstrip("#").strip() == title:
            level = len(line) - len(line.lstrip("#"))
            rest = lines[start + 1 :]
            end = next((n for n, later in enumerate(rest) if re.match(rf"^#{{1,{level}}}\s", later)), len(rest))
            return "\n".join(rest[:end])
    raise LookupError(title)


def table_rows(text: str) -> list[list[str]]:
    """The cells of every table row in `text`, header and ruler left out."""
    rows = [line.text for line in prose(text) if line.text.startswith("|")]
    cells = [[cell.strip() for cell in CELL_BORDER.split(row.strip().strip("|"))] for row in rows]
    rulers = {n for n, row in enumerate(cells) if all(re.fullmatch(r":?-+:?", cell) for cell in row)}
    return [row for n, row in enumerate(cells) if n not in rulers and n + 1 not in rulers]

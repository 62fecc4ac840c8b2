"""What one robots.txt says (RFC 9309): may this be fetched, by which line not, and how slowly. No network here.

Protego judges. It tells no line, so the one that decided is found by asking it again.
"""

import re
import zlib
from typing import Final

from protego import Protego

from jobs.targets import Target

PRODUCT_TOKEN: Final = "scraping-jobs"  # noqa: S105
"""What a site writes after `User-agent:` to mean this service (RFC 9309 2.2.1), also when a job sends a User-Agent of
its own: a rule must not be escaped by calling oneself something else."""
MAX_BYTES: Final = 500 * 1024
"""Of a file, decoded; the rest is not read (RFC 9309 2.5)."""
MAX_CRAWL_DELAY: Final = 30.0
"""Seconds. A longer one, which no job could wait for, counts as this."""
BIG_CHARACTERS: Final = 32 * 1024
"""From here on a file is worth a thread: judging by it could hold up the process's other attempts."""

_AGENT: Final = re.compile(r"\s*user(?:-|\s*)agent(?:\s*:|\s)([^#]*)", re.IGNORECASE)
_TOKEN: Final = re.compile(r"\s*([A-Za-z_-]+|\*(?=\s*$))")
_LITERAL: Final = re.compile(r"\s*d[a-z]{6,8}(?:\s*:|\s)\s*([A-Za-z0-9_.~/=-]*)", re.IGNORECASE)
"""Disallow in each spelling that Protego knows, and the beginning of its path that every URL it forbids has as well."""
_SHOWN: Final = 200
_MOST_CANDIDATES: Final = 200
_REREAD_CHARACTERS: Final = 256 * 1024


class RobotsFile:
    """The rules in `body`, of which `whole` says whether it is all of the file. Whatever is no rule is passed over."""

    def __init__(self, body: bytes, *, whole: bool = True) -> None:
        text = body.decode("utf-8-sig", "replace")
        lines = text.splitlines()
        if not whole:
            lines = lines[:-1]  # half a path would forbid more than the whole
        self._rules = Protego.parse("\n".join(map(_as_read, lines)))
        self._packed = zlib.compress("\n".join(lines).encode(), 1)  # read again only to name a line
        self.characters = len(text)

    @property
    def is_big(self) -> bool:
        return self.characters > BIG_CHARACTERS

    @property
    def crawl_delay(self) -> float:
        """Seconds between two requests, from 0 (none is asked for) to MAX_CRAWL_DELAY."""
        return min(self._rules.crawl_delay(PRODUCT_TOKEN) or 0.0, MAX_CRAWL_DELAY)

    def refusal(self, target: Target) -> str | None:
        """The rule that keeps `target` from being fetched, with its line, as a sentence; None when it may be."""
        if self._rules.can_fetch(target.url, PRODUCT_TOKEN):
            return None
        lines = zlib.decompress(self._packed).decode().split("\n")
        number = self._deciding_line(target, [_as_read(line) for line in lines])
        if number is None:
            return f"The robots.txt of {target.host} disallows it."
        return f"The robots.txt of {target.host} disallows it in line {number}: {_shown(lines[number - 1])}"

    def _deciding_line(self, target: Target, lines: list[str]) -> int | None:
        """The longest of the lines that forbid `target`; None where finding it would take too long.

        A line counts when the file without the other ones still says no: then it stands in a group that means us, and
        no longer rule allows the URL again.
        """
        forbidding = _forbidding(target, lines)
        tries = max(1, min(5, _REREAD_CHARACTERS // (self.characters + 1)))
        for number in sorted(forbidding, key=lambda n: -len(lines[n - 1]))[:tries]:
            others = forbidding - {number}
            rest = ["Disallow:" if n in others else line for n, line in enumerate(lines, 1)]
            if not Protego.parse("\n".join(rest)).can_fetch(target.url, PRODUCT_TOKEN):
                return number
        return None


def _as_read(line: str) -> str:
    """The line, with the name in `User-agent:` made ours, everybody's or another's.

    Protego would take `User-agent: scraping` for us as well, where the standard wants the whole token, and keep all
    rules of a group once for each of its names: with thousands of both, more than a process has memory for.
    """
    agent = _AGENT.match(line)
    if agent is None or not agent[1].strip():
        return line
    token = _TOKEN.match(agent[1])
    name = token[1].lower() if token else ""
    return f"User-agent: {name if name in ('*', PRODUCT_TOKEN) else 'another'}"


def _forbidding(target: Target, lines: list[str]) -> set[int]:
    """The lines that are, taken alone, rules against `target`; none where they are too many to look at each."""
    candidates: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        literal = _LITERAL.match(line)
        if literal and ("%" in target.url or target.request_target.startswith(literal[1])):
            candidates.setdefault(line, []).append(number)
    if len(candidates) > _MOST_CANDIDATES:
        return set()
    found = [n for line, n in candidates.items() if not _alone(line).can_fetch(target.url, PRODUCT_TOKEN)]
    return {number for numbers in found for number in numbers}


def _alone(line: str) -> Protego:
    return Protego.parse(f"User-agent: *\n{line}")


def _shown(line: str) -> str:
    """The line as it may stand in a record: no control characters, and not endless."""
    clean = "".join(character if character.isprintable() else "\ufffd" for character in line.strip())
    return clean if len(clean) <= _SHOWN else f"{clean[:_SHOWN]}…"

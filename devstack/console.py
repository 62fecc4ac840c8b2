"""Steps on the terminal: one line each, with the time it took, and a sign of life while one lasts.

Uses the standard library only, since `bootstrap.py` prints before anything is installed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TextIO

WIDTH = 110
CLEAR = "\r\033[K"


@dataclass(frozen=True)
class Pace:
    """Seconds. A step shorter than `quiet` shows nothing until it ends; then come signs of life, by where they go."""

    quiet: float = 2.0
    on_terminal: float = 0.25
    in_file: float = 10.0


USUAL_PACE = Pace()


class _Terminal:
    """Keeps the passing line of a step apart from all others: it is taken off before anything else is printed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passing = False

    def show(self, line: str) -> None:
        """Shows a line that the next one replaces."""
        with self._lock, suppress(OSError):
            print(f"{CLEAR}{line}", end="", file=sys.stderr, flush=True)
            self._passing = True

    def print(self, text: str, end: str, stream: TextIO) -> None:
        """A terminal that went away is no reason to stop a running stack."""
        with self._lock, suppress(OSError):
            if self._passing:
                print(CLEAR, end="", file=sys.stderr, flush=True)
                self._passing = False
            print(text, end=end, file=stream, flush=True)


_TERMINAL = _Terminal()


class Step:
    """One step under way. `note` is what it does at this moment; a terminal shows it while the step lasts."""

    def __init__(self, text: str, pace: Pace) -> None:
        self.text = text
        self.note = ""
        self._pace = pace
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._spin if sys.stderr.isatty() else self._tell, daemon=True)
        self._ticker.start()

    def end(self, mark: str) -> None:
        self._ended.set()
        self._ticker.join()
        note(f"{mark} {self.text} ({self._elapsed():.1f} s)")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _spin(self) -> None:
        wait = self._pace.quiet
        while not self._ended.wait(wait):
            _TERMINAL.show(f"  {self.text} ... {self._elapsed():.0f} s  {self.note}"[:WIDTH])
            wait = self._pace.on_terminal

    def _tell(self) -> None:
        """Whole lines only, without the note: what a program says of itself would be cut, and is stale when read."""
        if self._ended.wait(self._pace.quiet):
            return
        note(f"   {self.text} ...")
        wait = self._pace.in_file - self._pace.quiet
        while not self._ended.wait(wait):
            note(f"   still: {self.text}, {self._elapsed():.0f} s")
            wait = self._pace.in_file


@contextmanager
def step(text: str, pace: Pace = USUAL_PACE) -> Iterator[Step]:
    """Shows `text` as a step around the body: `ok` when it ends well, `!!` when it raises."""
    current = Step(text, pace)
    try:
        yield current
    except BaseException:
        current.end("!!")
        raise
    current.end("ok")


def say(line: str) -> None:
    """What was asked for, on stdout."""
    _TERMINAL.print(line, "\n", sys.stdout)


def note(line: str, *, end: str = "\n") -> None:
    """What happens on the way, on stderr, so that stdout stays clean for `--json`."""
    _TERMINAL.print(line, end, sys.stderr)

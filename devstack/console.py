"""Steps on the terminal: one line each, with the time it took, and a sign of life while one lasts.

Uses the standard library only, since `bootstrap.py` prints before anything is installed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

QUIET_SECONDS = 2.0  # a step shorter than this shows nothing until it ends
TTY_PERIOD = 0.25
PLAIN_PERIOD = 10.0  # a log file gets a sign of life this often, a terminal at TTY_PERIOD
WIDTH = 110


class Step:
    """One step under way. `note` is what it does at this moment; a long step shows it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.note = ""
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def end(self, mark: str) -> None:
        self._ended.set()
        self._ticker.join()
        note(f"{_clear()}{mark} {self.text} ({self._elapsed():.1f} s)")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _tick(self) -> None:
        terminal = sys.stderr.isatty()
        wait = QUIET_SECONDS
        while not self._ended.wait(wait):
            line = f"  {self.text} ... {self._elapsed():.0f} s  {self.note}"[:WIDTH]
            note(f"{_clear()}{line}", end="" if terminal else "\n")
            wait = TTY_PERIOD if terminal else PLAIN_PERIOD


@contextmanager
def step(text: str) -> Iterator[Step]:
    """Shows `text` as a step around the body: `ok` when it ends well, `!!` when it raises."""
    current = Step(text)
    try:
        yield current
    except BaseException:
        current.end("!!")
        raise
    current.end("ok")


def say(line: str) -> None:
    """What was asked for, on stdout. A terminal that went away is no reason to stop a running stack."""
    with suppress(OSError):
        print(line, flush=True)


def note(line: str, *, end: str = "\n") -> None:
    """What happens on the way, on stderr, so that stdout stays clean for `--json`."""
    with suppress(OSError):
        print(line, end=end, file=sys.stderr, flush=True)


def _clear() -> str:
    return "\r\033[K" if sys.stderr.isatty() else ""

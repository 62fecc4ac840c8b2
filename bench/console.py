"""Progress on stderr, so that nothing that takes longer than two seconds is silent."""

from __future__ import annotations

import sys
import time

SECONDS = 2.0


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Tells how far something is, every two seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._next = time.monotonic() + SECONDS

    def show(self, done: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS
            note(f"    {self._what}: {done:,} of {self._total:,}")

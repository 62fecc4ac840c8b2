"""How far a long command is, on the terminal of the person who waits; silent where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

WIDTH: Final = 30
REDRAW_SECONDS: Final = 0.1


class Terminal(Protocol):
    """What the bar is drawn on, as `sys.stderr` or a command's `self.stderr`."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


class ProgressBar:
    """Draws how many of `total` are done, a few times a second at most. A context manager: it ends the line as well."""

    def __init__(
        self, terminal: Terminal, label: str, total: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._terminal = terminal
        self._label = label
        self._total = total
        self._clock = clock
        self._done = 0
        self._drawn_at: float | None = None
        self._watched = terminal.isatty() and total > 0

    def advance(self, count: int) -> None:
        """`count` more are done."""
        self._done += count
        if self._drawn_at is None or self._clock() - self._drawn_at >= REDRAW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self._watched:
            share = min(self._done / self._total, 1.0)
            bar = ("#" * int(share * WIDTH)).ljust(WIDTH, "-")
            self._terminal.write(f"\r{self._label} [{bar}] {self._done:,} of {self._total:,}")
            self._terminal.flush()
            self._drawn_at = self._clock()

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watched:
            self._draw()
            self._terminal.write("\n")
            self._terminal.flush()

"""How far a long command is, on the terminal of the person who waits; silent where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from django.core.management.base import OutputWrapper

WIDTH: Final = 30
REDRAW_SECONDS: Final = 0.1


class ProgressBar:
    """Draws how many of `total` are done, a few times a second at most. A context manager: it ends the line as well.

    Nothing is drawn in the first `quiet` seconds, nor at all if all is done by then.
    """

    def __init__(
        self,
        terminal: OutputWrapper,
        label: str,
        total: int,
        *,
        quiet: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal = terminal
        self._label = label
        self._total = total
        self._clock = clock
        self._done = 0
        self._drawn_at: float | None = None
        self._quiet_until = clock() + quiet
        self._watched = terminal.isatty() and total > 0

    def advance(self, count: int) -> None:
        """`count` more are done."""
        self._done += count
        if self._drawn_at is None or self._clock() - self._drawn_at >= REDRAW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self._watched and self._clock() >= self._quiet_until:
            share = min(self._done / self._total, 1.0)
            bar = ("#" * int(share * WIDTH)).ljust(WIDTH, "-")
            self._write(f"\r{self._label} [{bar}] {self._done:,} of {self._total:,}")
            self._drawn_at = self._clock()

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw()
        if self._drawn_at is not None:
            self._write("\n")

    def _write(self, text: str) -> None:
        """As it is: by itself a command's stderr is red and ends every text with a new line."""
        self._terminal.write(text, style_func=str, ending="")
        self._terminal.flush()

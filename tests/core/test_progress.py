"""The progress bar of long commands."""

from __future__ import annotations

import io

from django.core.management.base import OutputWrapper

from core.progress import ProgressBar


class Terminal(io.StringIO):
    """A screen that somebody looks at."""

    def isatty(self) -> bool:
        return True


def drawn(seconds: list[float], *, quiet: float, terminal: io.StringIO | None = None) -> str:
    """What ten steps draw when the clock shows these seconds at every one of them, and the last ever after."""
    screen = Terminal() if terminal is None else terminal
    now = [0.0]
    with ProgressBar(OutputWrapper(screen), "Doing", 10, quiet=quiet, clock=lambda: now[0]) as bar:
        for second in seconds:
            now[0] = second
            bar.advance(10 // len(seconds))
    return screen.getvalue()


def test_a_long_command_shows_how_far_it_is_and_ends_its_line() -> None:
    text = drawn([1.0, 2.0], quiet=0.0)

    assert "0 of 10" in text
    assert "5 of 10" in text
    assert text.endswith("10 of 10\n")


def test_nothing_is_drawn_before_the_quiet_seconds_are_over() -> None:
    assert drawn([0.5, 1.9], quiet=2.0) == ""
    assert "5 of 10" not in drawn([1.0, 2.5], quiet=2.0)
    assert drawn([1.0, 2.5], quiet=2.0).endswith("10 of 10\n")


def test_nothing_is_drawn_where_nobody_looks() -> None:
    assert drawn([1.0, 2.0], quiet=0.0, terminal=io.StringIO()) == ""

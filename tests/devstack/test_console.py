"""Steps leave whole lines in a log, and on a terminal a passing line that nothing else gets mixed with."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr, redirect_stdout

import pytest

from devstack.console import CLEAR, Pace, note, say, step

FAST = Pace(quiet=0.05, on_terminal=0.02, in_file=0.2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_at_the_start_signs_of_life_and_a_line_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with step("install", FAST) as current:
        current.note = "WARNING: what pip says"
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["   install ...", "   still: install, 0 s"]
    assert lines[-1].startswith("ok install (0.")
    assert not [line for line in lines if "pip" in line]


def test_a_short_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with step("look"):
        pass
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_on_a_terminal_the_passing_line_is_taken_off_before_another_is_printed() -> None:
    terminal = Terminal()
    with redirect_stderr(terminal), redirect_stdout(terminal):
        with step("stop everything", FAST):
            for line in ("of a service", "of the runner"):
                time.sleep(0.15)
                (say if line == "of a service" else note)(line)
        note("after")
    text = terminal.getvalue()
    assert text.count("stop everything ...") >= 2
    assert f"s  {CLEAR}of a service\n" in text
    assert f"s  {CLEAR}of the runner\n" in text
    assert text.endswith("s)\nafter\n"), "the last line of the step stays"

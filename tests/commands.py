"""Management commands run as scripts run them: what they print, and their exit code."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from django.core.management import execute_from_command_line


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its one JSON object."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


def manage(*arguments: str) -> Ended:
    """Run `manage.py` with these arguments, in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            execute_from_command_line(["manage.py", *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def assert_refused(ended: Ended, said: str) -> None:
    assert ended.code == 2
    assert ended.out == ""
    assert said in ended.err
    assert "Traceback" not in ended.err

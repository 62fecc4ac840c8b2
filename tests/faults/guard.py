"""Ends the processes of a run whose own process was killed and could not: `python -m tests.faults.guard ID`.

It waits for the end of its standard input, whose other end only the run holds, so that the kernel tells it. Every
process of the run carries ID in its environment.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from types import TracebackType
from typing import Self

from devstack.layout import ROOT
from devstack.processes import STACK_ID, end_leftovers


class Guard:
    """A context manager; what is started with `environment` ends with it, however it ends."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self.environment = {STACK_ID: self._id}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.guard", self._id],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


if __name__ == "__main__":
    sys.stdin.read()
    end_leftovers([], sys.argv[1])

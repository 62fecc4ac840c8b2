"""Knowing a process again, and ending it with all it started.

A pid alone is not a name: kernels use it again. A process is known by pid and start mark together.
Standard library only, so that `./dev status` and `./dev down` need no `.venv`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["role", "service", "supervisor"]
# In the environment of every process of a stack: its value finds those that a killed supervisor had no time to record.
STACK_ID = "DEVSTACK_ID"
POLL_SECONDS = 0.05
HAS_PROC = Path("/proc/self/stat").exists()  # Linux; elsewhere ps(1) is asked


@dataclass(frozen=True)
class ProcessRecord:
    """A process of the stack as dev.json keeps it; it leads a process group of its own."""

    name: str
    kind: Kind
    pid: int
    started: str  # start mark, see start_mark
    since: str  # RFC 3339, for people
    stop_signal: int = signal.SIGTERM
    port: int | None = None

    def is_alive(self) -> bool:
        return start_mark(self.pid) == self.started


def start_mark(pid: int) -> str | None:
    """What tells this process from a later one with the same pid; None when there is none, or only its zombie."""
    if not HAS_PROC:
        state, _, started = _ps("-o", "stat=,lstart=", "-p", str(pid)).strip().partition(" ")
        return None if not started or state.startswith("Z") else started.strip()
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # Ticks since boot: unlike a time of day, it stays the same when the clock is set.
    return None if fields[0] in "ZX" else fields[19]


def signal_group(pid: int, number: int) -> None:
    """Sends a signal to the process group that `pid` leads, which may be gone already."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        # macOS answers EPERM for a group of zombies.
        return


def end_leftovers(records: Iterable[ProcessRecord], stack_id: str, grace: float = 5.0) -> list[str]:
    """Ends what a killed supervisor left behind: roles, then services, then whatever still carries its stack id.

    Returns the names of those that were still alive.
    """
    alive = [record for record in records if record.kind != "supervisor" and record.is_alive()]
    for kind in ("role", "service"):
        _end([record for record in alive if record.kind == kind], grace)
    _kill_marked(stack_id)
    return [record.name for record in alive]


def _end(records: Sequence[ProcessRecord], grace: float) -> None:
    for record in records:
        signal_group(record.pid, record.stop_signal)
    deadline = time.monotonic() + grace
    while any(record.is_alive() for record in records) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for record in records:
        if record.is_alive():
            signal_group(record.pid, signal.SIGKILL)


def _kill_marked(stack_id: str) -> None:
    for pid in _marked(f"{STACK_ID}={stack_id}"):
        if pid != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _marked(variable: str) -> Iterator[int]:
    """Pids of the living processes of this user with `variable` (`NAME=value`) in their environment."""
    if not HAS_PROC:
        lines = _ps("axeww", "-o", "pid=,command=").splitlines()
        yield from (int(line.split()[0]) for line in lines if f" {variable}" in line)
        return
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it ended meanwhile, or is another user's
                if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout  # noqa: S603, S607

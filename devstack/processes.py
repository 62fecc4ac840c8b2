"""Knowing a process again, and ending it with all it started.

A pid alone is not a name: kernels use it again. A process is known by pid and start mark together.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

Kind = Literal["role", "service", "supervisor"]
# In the environment of every process of a stack: its value finds those that a killed supervisor had no time to record.
STACK_ID = "DEVSTACK_ID"
POLL_SECONDS = 0.05


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
    stat = Path(f"/proc/{pid}/stat")
    try:
        if Path("/proc/self/stat").exists():
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            # Ticks since boot: unlike a time of day, it stays the same when the clock is set.
            return None if fields[0] in "ZX" else fields[19]
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except (OSError, psutil.Error):
        return None


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
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(STACK_ID) == stack_id:
                process.kill()
        except psutil.Error:
            continue

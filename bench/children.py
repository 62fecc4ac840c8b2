"""The processes of one benchmark: roles by their Procfile lines, the target, the clients."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from honcho.environ import parse_procfile

from bench.catalogue import BenchFailed
from bench.target import LOOPBACK
from devstack.layout import ROOT, Layout

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.05

Process = subprocess.Popen[bytes]


@dataclass
class Children:
    """Leaving the context ends every process that was started in it, by its pid; what they printed stays in `logs`."""

    logs: Path
    processes: list[Process] = field(default_factory=list)
    roles: list[tuple[str, Process]] = field(default_factory=list)

    def role(self, name: str, **environment: str) -> Process:
        """Start a role exactly as the Procfile has it."""
        commands = parse_procfile(Layout.of(os.environ).procfile.read_text(encoding="utf-8")).processes
        process = self._start(name, ["/bin/sh", "-c", commands[name]], environment, captured=False)
        self.roles.append((name, process))
        return process

    def python(self, module: str, *arguments: str) -> Process:
        """Start a module of this package, its output captured."""
        return self._start(module, [sys.executable, "-m", module, *arguments], {}, captured=True)

    def target(self) -> str:
        """Start the target; where it answers, as `ip:port`."""
        output = self.python("bench.target").stdout
        assert output is not None
        return f"{LOOPBACK}:{int(output.readline())}"

    def watch(self) -> None:
        """Raises BenchFailed when a role has ended by itself."""
        for name, process in self.roles:
            if process.poll() is not None:
                raise BenchFailed(f"The {name} ended with {process.returncode}; see {self.logs}.")

    def wait_until(self, condition: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Raises BenchFailed when `condition` does not come true in time, or a process ends meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.watch()
            if time.monotonic() > deadline:
                raise BenchFailed(f"After {seconds:.0f} s still not: {what}; see {self.logs}.")
            time.sleep(POLL_SECONDS)

    def _start(self, name: str, command: Sequence[str], environment: dict[str, str], *, captured: bool) -> Process:
        scripts = str(Path(sys.executable).parent)
        path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(command),
                cwd=ROOT,
                env={**os.environ, "PATH": path, "DATA_DIR": str(self.logs), **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if captured else log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for process in self.processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def cpu_seconds(process: Process) -> float:
    """User and system time of a process and the children it has now."""
    root = psutil.Process(process.pid)
    times = [member.cpu_times() for member in (root, *root.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def memory_mib(process: Process) -> float:
    """Resident memory."""
    return float(psutil.Process(process.pid).memory_info().rss / 1024**2)


def peak_memory_mib(process: Process) -> float:
    """The most resident memory since the process began, or since `forget_peak` (Linux's VmHWM)."""
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def forget_peak(process: Process) -> None:
    """Begin anew with what is resident now (proc(5), clear_refs)."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")

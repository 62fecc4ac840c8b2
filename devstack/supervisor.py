"""Keeps processes running: starts each, starts it again when it dies, ends them all in order.

Every process leads a session of its own, so that Ctrl-C reaches only the supervisor and what a process started can be
ended with it. A guard process waits for the supervisor's end and cleans up when it was killed.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from devstack.layout import ROOT
from devstack.logs import RoleLog
from devstack.processes import Kind, ProcessRecord, signal_group, start_mark

FIRST_BACKOFF = 0.5  # seconds before a process that died is started again; doubled up to
MAX_BACKOFF = 3.0  # this, which keeps the promise of 5 s
STEADY_SECONDS = 20.0  # a process that ran this long did not fail at its start
FAILURES_WORTH_A_LINE = 10
KILL_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True)
class ChildSpec:
    """What to run. `stop_signal` asks it to end; after `grace` seconds its whole group is killed."""

    name: str
    kind: Kind
    command: Sequence[str]
    environment: Mapping[str, str]
    grace: float
    stop_signal: int = signal.SIGTERM
    port: int | None = None


class _Running(asyncio.SubprocessProtocol):
    """A process under way. Its end is told apart from the end of its output, which its own children may hold open."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.pid = 0
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        self._write = write

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._write(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.silent.set()

    def process_exited(self) -> None:
        self.exited.set()


class Child:
    """One process that is to run until `stop`."""

    def __init__(
        self, spec: ChildSpec, log: RoleLog, on_change: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self.spec = spec
        self.log = log
        self.record: ProcessRecord | None = None
        self.failures = 0  # ends in a row, none of them asked for, none after a steady run
        self._on_change = on_change
        self._say = say
        self._running: _Running | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name=self.spec.name)

    async def stop(self) -> None:
        """Asks the process to end and waits; after the grace time its group is killed. Safe to repeat."""
        self._stopping.set()
        running = self._running
        if running is not None and not running.exited.is_set():
            signal_group(running.pid, self.spec.stop_signal)
            try:
                await asyncio.wait_for(running.exited.wait(), self.spec.grace)
            except TimeoutError:
                self._say(f"{self.spec.name} did not end within {self.spec.grace:.0f} s: killed")
        self.kill()
        if self._task is not None:
            _, unfinished = await asyncio.wait([self._task], timeout=KILL_SECONDS)
            for task in unfinished:
                task.cancel()

    def kill(self) -> None:
        """Ends the process and all it started at once."""
        self._stopping.set()
        if self._running is not None:
            signal_group(self._running.pid, signal.SIGKILL)

    async def _keep_running(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            ending = await self._run_once()
            if self._stopping.is_set():
                return
            self.failures = 1 if time.monotonic() - began > STEADY_SECONDS else self.failures + 1
            delay = min(FIRST_BACKOFF * 2.0 ** min(self.failures - 1, 10), MAX_BACKOFF)
            self._tell(ending, delay)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)

    async def _run_once(self) -> str:
        """Runs the process to its end, which is returned in words."""
        try:
            transport, running = await self._spawn()
        except OSError as error:
            return f"could not start: {error}"
        running.pid = transport.get_pid()
        self._running = running
        if self._stopping.is_set():
            self.kill()
        self._record(running.pid)
        await running.exited.wait()
        # What it started must not outlive it: a web server's orphaned workers would keep the port.
        signal_group(running.pid, signal.SIGKILL)
        self._running = self.record = None
        with suppress(TimeoutError):
            await asyncio.wait_for(running.silent.wait(), LAST_WORDS_SECONDS)
        transport.close()
        self._on_change()
        code = transport.get_returncode() or 0
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def _spawn(self) -> tuple[asyncio.SubprocessTransport, _Running]:
        return await asyncio.get_running_loop().subprocess_exec(
            lambda: _Running(self.log.write),
            *self.spec.command,
            env=self.spec.environment,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    def _record(self, pid: int) -> None:
        spec = self.spec
        self.record = ProcessRecord(
            spec.name, spec.kind, pid, start_mark(pid) or "", now(), spec.stop_signal, spec.port
        )
        self._on_change()

    def _tell(self, ending: str, delay: float) -> None:
        self.log.note(f"{self.spec.name} {ending}; started again in {delay:.1f} s")
        self._say(f"{self.spec.name} {ending}; started again in {delay:.1f} s")
        if self.failures % FAILURES_WORTH_A_LINE == 0:
            last = next((line for line in reversed(self.log.last_lines(20)) if not line.startswith("[dev]")), "nothing")
            self._say(f"{self.spec.name} failed {self.failures} times in a row. It last said: {last}")


@dataclass
class Supervisor:
    """The processes of one stack. `on_change` is called whenever one of them got a pid or lost it."""

    logs: Path
    say: Callable[[str], None]
    on_change: Callable[[], None]
    echo: bool = False
    children: list[Child] = field(default_factory=list)

    def start(self, spec: ChildSpec) -> Child:
        child = Child(spec, RoleLog(self.logs, spec.name, echo=self.echo), self.on_change, self.say)
        self.children.append(child)
        child.start()
        return child

    def records(self) -> list[ProcessRecord]:
        return [child.record for child in self.children if child.record is not None]

    async def stop(self) -> None:
        """Ends the roles together, then the services they used, in the reverse of the order they were started in."""
        await asyncio.gather(*(child.stop() for child in self.children if child.spec.kind == "role"))
        for child in reversed([child for child in self.children if child.spec.kind == "service"]):
            await child.stop()

    def kill(self) -> None:
        for child in self.children:
            child.kill()


class Guard:
    """A process that cleans up after a killed supervisor.

    It holds the read end of a pipe whose write end only the supervisor has; the kernel closes it whatever ends the
    supervisor, and the guard then ends the leftovers that dev.json of this very supervisor names.
    """

    def __init__(self, state: Path, supervisor: ProcessRecord) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "devstack.guard", str(state), str(supervisor.pid), supervisor.started],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Ends the guard after an orderly stop."""
        self._process.kill()
        self._process.wait()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

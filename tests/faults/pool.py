"""The roles of one run by their Procfile lines, each started again when it dies, as every runner of a Procfile does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from honcho.environ import parse_procfile

from devstack.layout import ROOT
from devstack.processes import signal_group

RESTART_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.1


@dataclass(slots=True)
class Member:
    """One process of a role. `ends` counts how often it had to be started again."""

    role: str
    name: str
    process: subprocess.Popen[bytes]
    ends: int = 0
    held: bool = False  # not to be started again, for now

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class Pool:
    """Keeps `roles` (a name for each process wanted, repeated for more) running; a context manager that ends them.

    The last process of all also gets `odd` into its environment.
    """

    def __init__(
        self, roles: Sequence[str], environment: Mapping[str, str], logs: Path, *, odd: Mapping[str, str]
    ) -> None:
        scripts = str(Path(sys.executable).parent)
        path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
        self._environment = {**os.environ, "PATH": path, "DATA_DIR": str(logs), **environment}
        self._commands = parse_procfile((ROOT / "Procfile").read_text(encoding="utf-8")).processes
        self._logs = logs
        self._roles = roles
        self._odd = {f"{roles[-1]}-{len(roles) - 1}": odd}
        self._ending = threading.Event()
        self._tender = threading.Thread(target=self._tend, name="pool", daemon=True)
        self.members: list[Member] = []

    def of(self, role: str) -> list[Member]:
        """The living processes of a role."""
        return [member for member in self.members if member.role == role and member.alive]

    def kill(self, member: Member) -> None:
        """SIGKILL, with all that the process started."""
        signal_group(member.pid, signal.SIGKILL)
        member.process.wait()

    def hold(self, member: Member) -> None:
        """Kill it and leave it at that until `release`."""
        member.held = True
        self.kill(member)

    def release(self, member: Member) -> None:
        """Let it be started again."""
        member.held = False

    def _tend(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            for member in self.members:
                if not (member.alive or member.held):
                    signal_group(member.pid, signal.SIGKILL)
                    if self._ending.wait(RESTART_SECONDS):
                        return
                    member.process = self._spawn(member.role, member.name)
                    member.ends += 1

    def _spawn(self, role: str, name: str) -> subprocess.Popen[bytes]:
        with (self._logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", self._commands[role]],
                cwd=ROOT,
                env={**self._environment, **self._odd.get(name, {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        for number, role in enumerate(self._roles):
            name = f"{role}-{number}"
            self.members.append(Member(role, name, self._spawn(role, name)))
        self._tender.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._tender.join()
        for member in self.members:
            signal_group(member.pid, signal.SIGCONT)
            member.process.terminate()
        deadline = time.monotonic() + (GRACE_SECONDS if error is None else 0.0)
        for member in self.members:
            with suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.1, deadline - time.monotonic()))
            signal_group(member.pid, signal.SIGKILL)
            member.process.wait()

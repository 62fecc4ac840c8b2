"""Real processes of the roles, run against the test database, for tests that need the whole path."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable
CELERY = [PYTHON, "-m", "celery", "-A", "core.celery"]
WORKER = [*CELERY, "worker", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"]

COMMANDS: dict[str, list[str]] = {
    "publisher": [PYTHON, "manage.py", "publish"],
    "beat": [*CELERY, "beat", "--schedule", "", "--pidfile=", "--loglevel", "WARNING"],
    "sweeper": [*WORKER, "-Q", "sweeper", "-P", "threads", "-c", "2", "--prefetch-multiplier", "1", "-n", "sweeper@%h"],
    "worker": [*WORKER, "-Q", "jobs.high,jobs.normal,jobs.low", "-P", "threads", "-c", "1"],
    "worker for high": [*WORKER, "-Q", "jobs.high", "-P", "threads", "-c", "1"],
    "events": [*WORKER, "-Q", "events", "-P", "threads", "-c", "2"],
}


def database_url() -> str:
    """The address of the database that this test works in."""
    values = connection.settings_dict
    password = f":{quote(values['PASSWORD'], safe='')}" if values["PASSWORD"] else ""
    return f"postgres://{values['USER']}{password}@{values['HOST']}:{values['PORT'] or 5432}/{values['NAME']}"


@dataclass
class Roles:
    """The processes of one test. Leaving the context ends them: SIGTERM first, SIGKILL for who does not listen."""

    environment: dict[str, str]
    logs: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, role: str, **extra: str) -> subprocess.Popen[bytes]:
        """Start one more process of `role`; `extra` are environment variables of this process alone."""
        command = list(COMMANDS[role])
        if role == "beat":
            command[command.index("--schedule") + 1] = str(self.logs / "celerybeat-schedule")
        if "worker" in command and "-n" not in command:
            command += ["-n", f"{role.split()[0]}{len(self.processes)}@%h"]
        log = (self.logs / f"{role}-{len(self.processes)}.log").open("wb")
        environment = os.environ | {"DATABASE_URL": database_url()} | self.environment | extra
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        log.close()
        self.processes.append(process)
        return process

    def output(self) -> str:
        """What all processes printed, for the message of a failing test."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')}" for path in sorted(self.logs.glob("*.log"))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(timeout=5)
        if error is not None:
            print(self.output())


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> float:
    """Seconds it took until `condition` held; fails the test when it does not within `seconds`."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, f"after {seconds} s still not: {what}"
        time.sleep(0.05)
    return time.monotonic() - started

"""Servers of one run alone, to be stopped and started at will: the embedded ones of the development stack."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from devstack.bucket import ensure_bucket
from devstack.layout import ROOT, Layout, Secrets
from devstack.ports import Ports
from devstack.postgres import Postgres, ensure_database
from devstack.processes import signal_group
from devstack.redis_server import RedisServer
from devstack.s3 import BUCKET, REGION, S3Server
from devstack.services import Service

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0


class ServerFailed(Exception):
    """A server of the run did not start or stop; its log says why."""


class Server:
    """One server: `start`, `stop`, any number of times."""

    def __init__(self, service: Service, log: Path, environment: Mapping[str, str]) -> None:
        self.service = service
        self._log = log
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers. Raises ServerFailed."""
        spec = self.service.spec(self._environment)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(spec.command), env=spec.environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.service.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{self.service.name} does not answer; see {self._log}")
            time.sleep(0.05)

    def stop(self, number: int | None = None) -> None:
        """Returns when it is gone. Without a signal's number it is asked as its own manual advises."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(self.service.spec({}).stop_signal if number is None else number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
            process.wait()


class Servers:
    """PostgreSQL, Redis and S3 in a folder; a context manager that stops them. `settings` is how to reach them."""

    def __init__(self, folder: Path, logs: Path, environment: Mapping[str, str]) -> None:
        layout = Layout(folder)
        layout.create()
        secrets, ports = Secrets(layout.secrets), Ports(layout.ports)
        services = (
            Postgres(layout, secrets, ports, durable=False),  # fsync guards against the machine's end, not a server's
            RedisServer(layout, secrets, ports),
            S3Server(layout, secrets, ports, BUCKET),
        )
        self.postgres, self.redis, self.s3 = (Server(one, logs / f"{one.name}.log", environment) for one in services)
        self.settings = {"S3_BUCKET": BUCKET, "S3_REGION": REGION, "SECRET_KEY": secrets.random("secret_key", 64)}
        for service in services:
            self.settings |= service.settings()

    def __enter__(self) -> Self:
        try:
            for server in self._all():
                server.service.prepare()
                server.start()
            ensure_database(self.settings["DATABASE_URL"])
            ensure_bucket(self.settings)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _all(self) -> tuple[Server, Server, Server]:
        return self.postgres, self.redis, self.s3

    def _stop(self) -> None:
        for server in self._all():
            server.stop()

"""The real web role, as the Procfile starts it, for tests that speak to it over a raw socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came over the wire; status 0 where the connection was just closed."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class WebRole:
    """A running web role."""

    port: int
    pid: int

    def connect(self, timeout: float = 15.0) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def send(self, data: bytes, *, then_close: bool = False) -> Reply:
        """Send bytes as they are and read until the server closes."""
        with self.connect() as link:
            with contextlib.suppress(ConnectionError):  # it may answer, and close, before it has read all
                link.sendall(data)
                if then_close:
                    link.shutdown(socket.SHUT_WR)
            return parse(_everything(link))

    def is_up(self) -> bool:
        """Whether it answers at all."""
        try:
            return self.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status == 200
        except OSError:
            return False


def _everything(link: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := link.recv(65536):
            received += piece
    return received


def parse(raw: bytes) -> Reply:
    """Split an answer, after an interim `100 Continue` if there is one."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        return parse(body)
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in lines)}
    return Reply(int(line.split()[1]) if line else 0, headers, body)


def command_of(role: str) -> str:
    """What the Procfile runs for a role."""
    lines = (ROOT / "Procfile").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{role}:"))


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with `variables`; the programs of this interpreter come first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "SECRET_KEY": "for-tests-only-" * 4, **variables}


@contextlib.contextmanager
def running_web_role(database_url: str, log: Path, **extra: str) -> Iterator[WebRole]:
    """Start the web role on a free port, with `extra` variables in its environment; ends it with SIGTERM."""
    port = free_port()
    variables = environment(DATABASE_URL=database_url, PORT=str(port), DEBUG="false", **extra)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", command_of("web")], cwd=ROOT, env=variables, stdout=output, stderr=output
        )
    role = WebRole(port, process.pid)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not role.is_up():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield role
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

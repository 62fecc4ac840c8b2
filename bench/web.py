"""The web role as the Procfile starts it, for benchmarks that talk to it."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from bench.children import Children, Process, cpu_seconds
from bench.target import LOOPBACK

START_SECONDS = 60.0
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Web:
    """A running web role with WORKERS processes."""

    port: int
    process: Process

    @classmethod
    def start(cls, children: Children) -> Web:
        """Start it on a free port and wait until it answers; raises BenchFailed."""
        port = _free_port()
        process = children.role("web", PORT=str(port), WEB_WORKERS=str(WORKERS))
        children.wait_until(lambda: _is_up(port), seconds=START_SECONDS, what="the web role answers")
        return cls(port, process)

    def cpu_seconds(self) -> float:
        """What its processes have used so far."""
        return cpu_seconds(self.process)


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/healthz", timeout=5) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        time.sleep(0.2)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])

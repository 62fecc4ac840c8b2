"""Loopback ports: the one used last time if it is free, else the usual one, else any other.

Only the web role has a usual port. Embedded servers take spare ones from the start: on 5432, 6379 or 9000 they would
stand in the way of a real server that the user starts later.
"""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path

from devstack.failures import DevFailed
from devstack.layout import read_json, write_private

LOOPBACK = "127.0.0.1"
# Below the range from which kernels take ports for outgoing connections (32768 on Linux): a port that a passing
# connection holds at the moment of a restart would fail the start.
SPARE_PORTS = range(20_000, 32_000)


class NoFreePort(DevFailed):
    """Every port that was tried is taken."""


class Ports:
    """The ports of one stack, remembered in its data folder so that addresses survive a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chosen: dict[str, int] = {}

    def choose(self, name: str, usual: int | None = None, *, wanted: int | None = None) -> int:
        """A free port for `name`, `wanted` if that is one. Raises NoFreePort."""
        remembered = read_json(self._path).get(name)
        spare = random.sample(SPARE_PORTS, 50)
        candidates = [port for port in (wanted, remembered, usual, *spare) if isinstance(port, int)]
        for port in candidates:
            if port not in self._chosen.values() and is_free(port):
                self._chosen[name] = port
                write_private(self._path, json.dumps({**read_json(self._path), **self._chosen}))
                return port
        raise NoFreePort(f"No free port for {name} on {LOOPBACK}; tried {candidates}.")


def is_free(port: int) -> bool:
    """Whether a server could listen here now. Connections of an earlier server that linger do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return not accepts_connections(LOOPBACK, port)


def accepts_connections(host: str, port: int, timeout: float = 2.0) -> bool:
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False

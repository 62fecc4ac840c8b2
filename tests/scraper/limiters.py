"""Limiters on a Redis of their own, which can be flushed, stopped and started, with the test's database."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import redis

from devstack.layout import Layout, Secrets
from devstack.ports import Ports
from devstack.redis_server import RedisServer
from scraper.host_records import HostRecords
from scraper.politeness import Limiter
from tests.faults.servers import Server

_numbers = itertools.count(1)


class OwnRedis:
    """A server of this test alone. What it holds outlives `stop`, unless it is started `empty`."""

    def __init__(self, folder: Path) -> None:
        layout = Layout(folder)
        layout.create()
        service = RedisServer(layout, Secrets(layout.secrets), Ports(layout.ports))
        service.prepare()
        self.url = service.settings()["REDIS_URL"]
        self._data = layout.data / "redis"
        self._server = Server(service, folder / "redis.log", {})

    def start(self, *, empty: bool = False) -> None:
        if empty:
            for path in self._data.rglob("*.aof*"):
                path.unlink()
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()


@contextmanager
def own_redis(folder: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def limiter_on(url: str, *, prefix: str = "test:", settled: bool = True) -> AsyncIterator[Limiter]:
    """A limiter as a worker process has it; when `settled`, its epoch is old enough for every bucket to be full."""
    limiter = Limiter(HostRecords(), url=url, process=f"process{next(_numbers)}:{uuid.uuid4().hex[:8]}", prefix=prefix)
    await limiter.start()
    try:
        if settled:
            await asyncio.to_thread(age_epoch, url, prefix)
            await until(limiter._opened.is_set, "the limiter is open")
        yield limiter
    finally:
        await limiter.close()


def age_epoch(url: str, prefix: str = "test:") -> None:
    """Make it an hour old, as that of a stack that has been idle; waits until a process has begun one."""
    deadline = time.monotonic() + 10
    with redis.Redis.from_url(url, decode_responses=True) as client:
        while not client.hexists(f"{prefix}epoch", "began"):
            assert time.monotonic() < deadline, "an epoch begins"
            time.sleep(0.01)
        began = float(client.hget(f"{prefix}epoch", "began") or 0)
        if began > time.time() - 1800:
            client.hset(f"{prefix}epoch", mapping={"began": began - 3600, "opens": began})


async def until(condition: Callable[[], bool], what: str, *, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test to its end."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())

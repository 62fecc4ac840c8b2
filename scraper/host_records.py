"""A worker's way to what PostgreSQL knows of hosts: policies, kept fresh; blocks and paces, read and written down. In a
thread of its own, so that the event loop never waits for a statement."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from django.db import Error as DatabaseError
from django.db import connection, connections

from jobs import hosts
from jobs.hosts import ActiveState, Policies

REFRESH_SECONDS: Final = 1.0  # an operator's pause holds within this, and the time of one query
OUTAGE_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 60.0  # for which a block waits for a database that is away

T = TypeVar("T")

logger = logging.getLogger(__name__)


class HostRecords:
    """Used inside one event loop. `policies` is None until they were read for the first time."""

    def __init__(self) -> None:
        self.policies: Policies | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hosts")

    async def watch(self) -> None:
        """Keep `policies` fresh; runs until it is cancelled. While the database is away the last ones hold."""
        while True:
            try:
                self.policies = await self._call(_fresh, self.policies)
            except DatabaseError as error:
                logger.warning("policies of hosts not read: %s", type(error).__name__)
            await asyncio.sleep(REFRESH_SECONDS)

    async def active_states(self) -> dict[str, ActiveState]:
        """Blocks and paces that hold. Raises django's database Error."""
        return await self._call(hosts.active_states)

    async def block(self, host: str, seconds: float, *, by: str) -> None:
        """Write a block of `seconds` from now on down, for as long as a database that is away may be waited for."""
        ends = time.monotonic() + seconds
        give_up = time.monotonic() + min(WRITE_SECONDS, seconds)
        while True:
            try:
                await self._call(lambda: hosts.block(host, ends - time.monotonic(), by=by))
            except DatabaseError as error:
                if time.monotonic() > give_up:
                    logger.error("the block of %s is known to Redis alone: %s", host, error)
                    return
                await asyncio.sleep(OUTAGE_SECONDS)
            else:
                return

    async def record_pace(self, host: str, pace: float) -> None:
        """Write a pace down; one that is lost is told again with the next change."""
        try:
            await self._call(hosts.record_pace, host, pace)
        except DatabaseError as error:
            logger.warning("the pace of %s is known to Redis alone: %s", host, type(error).__name__)

    async def record_crawl_delay(self, host: str, seconds: float) -> None:
        """Write down what a robots.txt asks for; what is lost is told again when it is read again."""
        try:
            await self._call(hosts.record_crawl_delay, host, seconds)
        except DatabaseError as error:
            logger.warning("the crawl delay of %s is not kept: %s", host, type(error).__name__)

    async def close(self) -> None:
        """Give the connection back and end the thread."""
        await self._call(connections.close_all)
        self._thread.shutdown(wait=False)

    async def _call(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, _with_connection, call, *arguments)


def _fresh(known: Policies | None) -> Policies:
    return known if known is not None and known.fingerprint == hosts.policies_fingerprint() else hosts.load_policies()


def _with_connection(call: Callable[..., T], *arguments: object) -> T:
    """The thread keeps its connection, unless that may be what failed."""
    try:
        return call(*arguments)
    except BaseException:
        connection.close()
        raise

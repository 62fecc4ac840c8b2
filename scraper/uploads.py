"""The engine's way to the storage: bodies that are uploaded, objects that are left behind, and whether it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from results.storage import ResultStore, StorageUnavailable
from scraper.outcomes import BodyFile

CLEAN_UP_SECONDS: Final = 5.0  # for deletions under way when the engine stops
PROBE_SECONDS: Final = 1.0  # between two questions to a storage that was away

logger = logging.getLogger(__name__)


class Uploads:
    """Used inside the engine's loop."""

    def __init__(self) -> None:
        self._store = ResultStore()
        self._behind: set[asyncio.Task[None]] = set()  # deletions that nobody waits for
        self._probe: asyncio.Task[None] | None = None  # there while the storage is away

    async def upload(self, key: str, body: BodyFile) -> None:
        """Store the body. Raises StorageUnavailable, and holds off `ready` until the storage answers again.

        When it is cancelled it does not wait for a storage that may hang: what arrives is deleted behind it, or by the
        sweeper.
        """
        upload = asyncio.create_task(self._store.upload(key, body))
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            self._later(self._delete_after(upload, key))
            raise
        except StorageUnavailable:
            if self._probe is None:
                self._probe = asyncio.create_task(self._ask_until_it_answers())
            raise

    async def ready(self) -> None:
        """Wait while there is nowhere to put a response: a fetch would use up an attempt and the target's patience."""
        while self._probe is not None:
            await asyncio.wait([self._probe])

    def delete_later(self, key: str) -> None:
        """Delete an object that no result names; what is not deleted now, the sweeper finds by the attempt's row."""
        self._later(self._delete(key))

    async def close(self) -> None:
        """Wait a moment for deletions, then end."""
        if self._behind:
            await asyncio.wait(self._behind, timeout=CLEAN_UP_SECONDS)
        tasks = [*self._behind, *filter(None, [self._probe])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._store.close)

    async def _ask_until_it_answers(self) -> None:
        logger.warning("holding off, the storage does not answer")
        try:
            while True:
                try:
                    return await self._store.ping()
                except StorageUnavailable:
                    await asyncio.sleep(PROBE_SECONDS)
        finally:
            self._probe = None

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def _delete_after(self, upload: asyncio.Task[None], key: str) -> None:
        await asyncio.gather(upload, return_exceptions=True)
        await self._delete(key)

    async def _delete(self, key: str) -> None:
        try:
            await self._store.delete(key)
        except StorageUnavailable as error:
            logger.warning("object of a discarded attempt stays behind: %s", error)

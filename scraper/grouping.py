"""Many small writes become few statements: whatever is asked for while one is under way goes into the next together.
An idle worker writes at once, a busy one in groups, and nobody waits for a timer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Grouper(Generic[Item, Answer]):
    """Calls `write` with the items that gathered, one call at a time; `write` answers one value an item, in order."""

    def __init__(self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, at_most: int = 100) -> None:
        self._write = write
        self._at_most = at_most
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._flusher: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Answer:
        """Wait for the answer to `item`; raises what `write` raised for its group."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush())
        return await future

    async def _flush(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[: self._at_most], self._waiting[self._at_most :]
            try:
                answers = await self._write([item for item, _ in group])
            except Exception as error:  # noqa: BLE001  whatever it was, those who wait must hear of it
                _settle(group, error)
            else:
                for (_, future), answer in zip(group, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        self._flusher = None


def _settle(group: list[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)

"""Looks answers up for an event loop: one thread asks Redis for all that are wanted at the moment in one round trip.

So the busier the process is, the less a look costs, and however many callers ask, they take one thread and one
connection.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from query.answers import JobAnswer
from query.cache import AnswerCache

MOST_AT_ONCE: Final = 64

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wish:
    job_id: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[JobAnswer | None]


class Lookups:
    """The thread starts with the first look, so after any fork."""

    def __init__(self, answers: AnswerCache) -> None:
        self._answers = answers
        self._wishes: queue.SimpleQueue[_Wish] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def find(self, job_id: str) -> JobAnswer | None:
        """The answer that is kept under the id; None where there is none."""
        if self._thread is None:  # one loop calls, so no two threads start
            self._thread = threading.Thread(target=self._run, name="lookups", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[JobAnswer | None] = loop.create_future()
        self._wishes.put(_Wish(job_id, loop, future))
        return await future

    def _run(self) -> None:
        while True:
            wishes = self._next()
            try:
                found = self._answers.recall([wish.job_id for wish in wishes])
            except Exception:  # whatever it is, nobody may wait for ever
                logger.exception("answers could not be looked up")
                found = [None] * len(wishes)
            _grant(wishes, found)

    def _next(self) -> list[_Wish]:
        wishes = [self._wishes.get()]
        while len(wishes) < MOST_AT_ONCE:
            try:
                wishes.append(self._wishes.get_nowait())
            except queue.Empty:
                break
        return wishes


def _grant(wishes: list[_Wish], found: list[JobAnswer | None]) -> None:
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[_Wish, JobAnswer | None]]] = defaultdict(list)
    for wish, answer in zip(wishes, found, strict=True):
        by_loop[wish.loop].append((wish, answer))
    for loop, granted in by_loop.items():
        try:
            loop.call_soon_threadsafe(_tell, granted)
        except RuntimeError:  # the loop was closed meanwhile
            logger.debug("nobody waits for an answer any more")


def _tell(granted: list[tuple[_Wish, JobAnswer | None]]) -> None:
    for wish, answer in granted:
        if not wish.future.done():
            wish.future.set_result(answer)

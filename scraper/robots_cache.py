"""Which robots.txt were read, for a while: none is read twice for two attempts, and none by two at once."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final

from scraper.robots import RobotsFile

MAX_FILES: Final = 1000
MAX_CHARACTERS: Final = 2 * 1024 * 1024
"""Of all files together. What is used least goes first."""
FRESH_SECONDS: Final = 3600.0
KEPT_SECONDS: Final = 24 * 3600.0
"""RFC 9309 2.4: a file is used for a day at most. One that is no longer fresh is used when it cannot be read again."""
STALE_SECONDS: Final = 60.0
"""For which an older file is used before the host is asked again."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of one look: `file` (None: there are no rules), or why it could not be read: code, detail and the raw
    Retry-After."""

    file: RobotsFile | None = None
    unread: tuple[str, str, str | None] | None = None

    @property
    def characters(self) -> int:
        return 0 if self.file is None else self.file.characters


@dataclass(slots=True)
class _Entry:
    reading: Reading
    fresh_until: float
    kept_until: float


class RobotsCache:
    """Used inside one event loop. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._characters = 0
        self._flights: dict[Hashable, asyncio.Future[Reading | None]] = {}

    async def reading(self, key: Hashable, read: Callable[[], Awaitable[Reading]]) -> Reading:
        """What is known of `key`; if nothing is, one caller reads and the others wait for it.

        A failure is told to those who wait and not kept: each of their tries counts as an attempt, and looks anew.
        Raises what `read` raises, to the one who read: who waited takes over.
        """
        while True:
            entry = self._entries.get(key)
            if entry is not None and entry.fresh_until > self._clock():
                self._entries.move_to_end(key)
                return entry.reading
            flight = self._flights.get(key)
            if flight is None:
                return await self._read(key, read)
            reading = await asyncio.shield(flight)  # a waiter that is cancelled must not cancel the others' wait
            if reading is not None:
                return reading

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[Reading]]) -> Reading:
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        reading = None
        try:
            reading = self._keep(key, await read())
            return reading
        finally:
            del self._flights[key]
            flight.set_result(reading)

    def _keep(self, key: Hashable, reading: Reading) -> Reading:
        now = self._clock()
        known = self._entries.pop(key, None)
        if known is not None:
            self._characters -= known.reading.characters
        if reading.unread is None:
            entry = _Entry(reading, now + FRESH_SECONDS, now + KEPT_SECONDS)
        elif known is not None and known.kept_until > now:
            entry = _Entry(known.reading, min(now + STALE_SECONDS, known.kept_until), known.kept_until)
        else:
            return reading
        self._entries[key] = entry
        self._characters += entry.reading.characters
        while len(self._entries) > MAX_FILES or (self._characters > MAX_CHARACTERS and len(self._entries) > 1):
            _, dropped = self._entries.popitem(last=False)
            self._characters -= dropped.reading.characters
        return entry.reading

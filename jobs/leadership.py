"""One leader among several processes of a role: a session lock in PostgreSQL, which frees it when the holder dies."""

from __future__ import annotations

import logging
from typing import Final

from jobs.notices import WORK, Listener

PUBLISHER_LOCK: Final = 7_010_001

logger = logging.getLogger(__name__)


class Leader:
    """Holds the lock on a connection of its own, and hears on it that work waits.

    `lead()` answers whether this process leads; `wait()` sleeps until a notice or the time is over. Losing the
    connection loses the lock, and is noticed at the next call of either.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._listener: Listener | None = None
        self._leads = False

    def lead(self) -> bool:
        """Take the lock when it is free. Raises psycopg.Error while the database does not answer."""
        if self._listener is None or self._listener.closed:
            self._leads = False
            self._listener = Listener(WORK)
        if not self._leads:
            row = self._listener.link.execute("SELECT pg_try_advisory_lock(%s)", [self._lock]).fetchone()
            self._leads = bool(row and row[0])
            if self._leads:
                logger.info("leading")
        return self._leads

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or less when a notice comes. Raises psycopg.Error when the connection is lost."""
        if self._listener is not None:
            self._listener.wait(seconds)

    def close(self) -> None:
        """Give the lock up."""
        if self._listener is not None:
            self._listener.close()
        self._listener, self._leads = None, False

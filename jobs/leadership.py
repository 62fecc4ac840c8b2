"""One leader among several processes of a role: a session lock in PostgreSQL, which frees it when the holder dies."""

from __future__ import annotations

import logging

import psycopg

from jobs.wakeup import CHANNEL, dedicated_connection

PUBLISHER_LOCK = 7_010_001

logger = logging.getLogger(__name__)


class Leader:
    """Holds the lock on a connection of its own, and hears wake-up notices on it.

    `lead()` answers whether this process leads; `wait()` sleeps until a notice or the time is over. Losing the
    connection loses the lock, and is noticed at the next call of either.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._link: psycopg.Connection | None = None
        self._leads = False

    def lead(self) -> bool:
        """Take the lock when it is free. Raises psycopg.Error while the database does not answer."""
        if self._link is None or self._link.closed:
            self._leads = False
            self._link = dedicated_connection()
            self._link.execute(f"LISTEN {CHANNEL}")
        if not self._leads:
            row = self._link.execute("SELECT pg_try_advisory_lock(%s)", [self._lock]).fetchone()
            self._leads = bool(row and row[0])
            if self._leads:
                logger.info("leading")
        return self._leads

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or less when a notice comes. Raises psycopg.Error when the connection is lost."""
        if self._link is None:
            return
        for _ in self._link.notifies(timeout=seconds, stop_after=1):
            return

    def close(self) -> None:
        """Give the lock up."""
        if self._link is not None:
            self._link.close()
        self._link, self._leads = None, False

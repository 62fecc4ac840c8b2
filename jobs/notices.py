"""Notices between processes over PostgreSQL's NOTIFY: "there is work", "it was published", "this job is to be stopped".

A notice is sent after the commit, from a connection and thread of its own: a NOTIFY inside the intake's transaction
takes a lock on the whole database at commit, and all committers would queue behind it. Equal notices are coalesced to a
few a second per process. Any of them may be lost: publisher and workers poll, and a heartbeat tells of a cancel as
well.
"""

from __future__ import annotations

import logging
import threading
import uuid
from types import TracebackType
from typing import Final, Self

import psycopg
from django.db import connection

WORK: Final = "jobs_work"
READY: Final = "jobs_ready"
CANCEL: Final = "jobs_cancel"
MIN_INTERVAL_SECONDS: Final = 0.1
RECONNECT_SECONDS: Final = 1.0
_NOT_LIBPQ: Final = frozenset({"cursor_factory", "context", "prepare_threshold", "pool", "autocommit"})

logger = logging.getLogger(__name__)


def dedicated_connection() -> psycopg.Connection:
    """A connection outside the pool, in autocommit: for LISTEN, NOTIFY and session locks, which belong to a session."""
    parameters = {k: v for k, v in connection.get_connection_params().items() if k not in _NOT_LIBPQ}
    return psycopg.connect(**parameters, autocommit=True)


class Notifier:
    """Sends coalesced notices from one background thread, started with the first notice (so after any fork)."""

    def __init__(self) -> None:
        self._pending: set[tuple[str, str]] = set()
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def notify(self, channel: str, payload: str = "") -> None:
        """Ask for a notice; returns at once and never raises for a database that does not answer."""
        with self._lock:
            self._pending.add((channel, payload))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
                self._thread.start()
        self._wanted.set()

    def stop(self) -> None:
        """End the thread and its connection; a later notice starts them again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping.set()
            self._wanted.set()
            thread.join()
            self._stopping.clear()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._send_on(dedicated_connection())
            except psycopg.Error as error:
                logger.warning("notice not sent, its readers poll meanwhile: %s", type(error).__name__)
                self._stopping.wait(RECONNECT_SECONDS)

    def _send_on(self, link: psycopg.Connection) -> None:
        with link:
            while not self._stopping.is_set():
                self._wanted.wait()
                self._wanted.clear()
                with self._lock:
                    notices, self._pending = self._pending, set()
                for channel, payload in notices:
                    link.execute("SELECT pg_notify(%s, %s)", [channel, payload])
                self._stopping.wait(MIN_INTERVAL_SECONDS)


class Listener:
    """Hears channels on a connection of its own; a context manager. Raises psycopg.Error when that breaks."""

    def __init__(self, *channels: str) -> None:
        self.link = dedicated_connection()
        for channel in channels:
            self.link.execute(f"LISTEN {channel}")

    def wait(self, seconds: float, *, at_most: int = 1) -> list[str]:
        """The payloads that came; returns at the first `at_most` of them, or when the time is over."""
        return [payload for _, payload in self.hear(seconds, at_most=at_most)]

    def hear(self, seconds: float, *, at_most: int = 1) -> list[tuple[str, str]]:
        """As `wait`, each payload with its channel."""
        return [(notice.channel, notice.payload) for notice in self.link.notifies(timeout=seconds, stop_after=at_most)]

    @property
    def closed(self) -> bool:
        """Whether the connection is known to be gone."""
        return self.link.closed

    def close(self) -> None:
        """Stop listening."""
        self.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_notifier = Notifier()
stop = _notifier.stop


def work_waits() -> None:
    """Tell the publisher, soon."""
    _notifier.notify(WORK)


def work_published() -> None:
    """Tell the workers, soon: messages wait in their queues."""
    _notifier.notify(READY)


def cancel_wanted(job_id: uuid.UUID) -> None:
    """Tell the workers, soon; the one that runs the job stops it."""
    _notifier.notify(CANCEL, str(job_id))

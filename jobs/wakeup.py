"""The notice "there is work" from whoever committed it to the publisher, over PostgreSQL's NOTIFY.

It is sent after the commit, from a connection and thread of its own: a NOTIFY inside the intake's transaction takes a
lock on the whole database at commit, and all committers would queue behind it. Notices are coalesced to a few a second
per process, and may be lost: the publisher polls as well.
"""

from __future__ import annotations

import logging
import threading

import psycopg
from django.db import connection

CHANNEL = "jobs_wakeup"
MIN_INTERVAL_SECONDS = 0.1
RECONNECT_SECONDS = 1.0

logger = logging.getLogger(__name__)


def dedicated_connection() -> psycopg.Connection:
    """A connection outside the pool, in autocommit: for LISTEN, NOTIFY and session locks, which belong to a session."""
    parameters = {k: v for k, v in connection.get_connection_params().items() if k in _LIBPQ}
    return psycopg.connect(
        **parameters,
        autocommit=True,
        keepalives=1,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=2,
        tcp_user_timeout=10_000,
    )


_LIBPQ = frozenset(
    {"dbname", "user", "password", "host", "port", "connect_timeout", "options", "sslmode", "sslrootcert"}
)


class Notifier:
    """Sends coalesced notices from one background thread, started with the first notice (so after any fork)."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """Ask for a notice; returns at once and never raises for a database that does not answer."""
        self._wanted.set()
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="wakeup", daemon=True)
                self._thread.start()

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
                logger.warning("wake-up notice not sent, the publisher polls meanwhile: %s", type(error).__name__)
                self._stopping.wait(RECONNECT_SECONDS)

    def _send_on(self, link: psycopg.Connection) -> None:
        with link:
            while not self._stopping.is_set():
                self._wanted.wait()
                self._wanted.clear()
                link.execute(f"NOTIFY {CHANNEL}")
                self._stopping.wait(MIN_INTERVAL_SECONDS)


_notifier = Notifier()
notify = _notifier.notify
stop = _notifier.stop

"""Hears the notices that concern a worker, so that a cancel takes a moment and not a heartbeat, and an idle worker need
not ask the broker all the time."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Final

import psycopg

from jobs.notices import CANCEL, READY, Listener

LOOK_UP_SECONDS: Final = 1.0
RECONNECT_SECONDS: Final = 1.0
START_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


class NoticeWatch:
    """A thread that calls `stop_job` with the id of each job whose cancel was announced, and `wake` when messages were
    published. What it misses while its connection is away, the next heartbeat and the next look at the queues tell."""

    def __init__(self, *, stop_job: Callable[[uuid.UUID], None], wake: Callable[[], None]) -> None:
        self._stop_job = stop_job
        self._wake = wake
        self._stopping = threading.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)

    def start(self) -> None:
        """Begin to listen; waits a moment until it does, so that the first jobs can be stopped as well."""
        self._thread.start()
        self._listening.wait(START_SECONDS)

    def stop(self) -> None:
        """End the thread; takes up to LOOK_UP_SECONDS."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Listener(READY, CANCEL) as listener:
                    self._listening.set()
                    self._hear(listener)
            except psycopg.Error as error:
                logger.warning("cancels are heard by heartbeat only: %s", type(error).__name__)
                self._stopping.wait(RECONNECT_SECONDS)

    def _hear(self, listener: Listener) -> None:
        while not self._stopping.is_set():
            for channel, payload in listener.hear(LOOK_UP_SECONDS):
                if channel == READY:
                    self._wake()
                else:
                    self._stop_job(uuid.UUID(payload))

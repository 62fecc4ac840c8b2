"""Notices a worker that has gone deaf: connected as it seems, but no message comes although its queues hold some.

Known of Celery after a broker's reconnect (celery issues 10205, 10302). Nothing inside the process mends it, so the
process ends, its runner starts it again, and what it ran goes back to the queue.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Final

from jobs.bus import BROKER_ERRORS, Bus

CONFIRM_SECONDS: Final = 1.0
EXIT_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class HearingWatch:
    """A thread that calls `leave` once this process has had free slots and heard nothing for `patience` seconds while
    messages lay in its queues.

    `silent_for` says for how many seconds nothing came although something could have; `waiting` how many messages the
    broker holds for us.
    """

    def __init__(
        self,
        *,
        silent_for: Callable[[], float],
        waiting: Callable[[], int],
        patience: float,
        leave: Callable[[], None],
    ) -> None:
        self._silent_for = silent_for
        self._waiting = waiting
        self._patience = patience
        self._leave = leave
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hearing", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._patience / 3):
            if self._is_deaf():
                logger.error("no message for %.0f s although the queues hold some: leaving", self._silent_for())
                self._leave()
                return

    def _is_deaf(self) -> bool:
        if self._silent_for() < self._patience or self._waiting() == 0:
            return False
        # Messages that came just now are on their way to us; deaf is who has not got them a moment later either.
        self._stopping.wait(CONFIRM_SECONDS)
        return self._silent_for() >= self._patience and self._waiting() > 0


def messages_in(queues: Sequence[str]) -> int:
    """How many messages the broker holds in `queues`; 0 when it does not answer: an outage is not deafness."""
    try:
        with Bus() as bus:
            return bus.holds(queues)
    except BROKER_ERRORS:
        return 0


def leave_process() -> None:
    """End this process as SIGTERM does; one that cannot even do that any more is cut short."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, args=(1,))
    timer.daemon = True
    timer.start()
    os.kill(os.getpid(), signal.SIGTERM)

"""Spares callers a part that does not answer: one of them finds out, a thread in the background asks until it is back.

So an outage costs each caller that is under way one try at most, and those who come later nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.1  # a busy machine may miss one answer; that is over in a moment
LONGEST_PAUSE_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class Breaker:
    """Whether a part may be asked. Safe to use from many threads.

    `probe` asks the part and returns when it answers; what it raises is one of `errors` while it does not.
    """

    def __init__(self, name: str, probe: Callable[[], object], errors: tuple[type[Exception], ...]) -> None:
        self._name = name
        self._probe = probe
        self._errors = errors
        self._lock = threading.Lock()
        self._open = False

    @property
    def closed(self) -> bool:
        """Whether the part answered when it was last asked."""
        return not self._open

    def trip(self, error: Exception) -> None:
        """The part did not answer: let nobody else wait for it until it does."""
        with self._lock:
            if self._open:
                return
            self._open = True
        logger.warning("%s does not answer, going on without it: %s: %s", self._name, type(error).__name__, error)
        threading.Thread(target=self._ask_until_it_answers, name=f"breaker {self._name}", daemon=True).start()

    def _ask_until_it_answers(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._answers_after(pause):
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._open = False
        logger.warning("%s answers again", self._name)

    def _answers_after(self, seconds: float) -> bool:
        threading.Event().wait(seconds)
        try:
            self._probe()
        except self._errors:
            return False
        return True

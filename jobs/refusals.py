"""How many jobs were refused for a tenant's limits, by the limit, counted for all web processes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from django.db import DatabaseError, InterfaceError

from core.errors import TooManyRequests
from jobs import counters
from jobs.admission import TooManyQueued
from tenants.errors import SubmitRateExceeded

NOTE_SECONDS: Final = 1.0
REASONS: Final[dict[type[TooManyRequests], str]] = {SubmitRateExceeded: "submit_rate", TooManyQueued: "max_queued"}

logger = logging.getLogger(__name__)


class Tally:
    """Adds refusals up, and writes them once a second at most: a caller who does not heed a limit costs no writes.

    The last second's are written with the next refusal, or lost with the process.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._written_at = float("-inf")

    def note(self, reason: str, count: int) -> None:
        """`count` jobs more were refused."""
        with self._lock:
            self._counts[reason] += count
            now = self._clock()
            if now - self._written_at < NOTE_SECONDS:
                return
            self._written_at = now
            counts, self._counts = self._counts, Counter()
        self._write(counts)

    def _write(self, counts: Counter[str]) -> None:
        try:
            for reason, count in counts.items():
                counters.add(counters.REFUSED[reason], count)
        except (DatabaseError, InterfaceError) as error:  # a refusal stays one, whether it is counted or not
            logger.warning("%s refusals were not counted: %s", counts.total(), error)


_tally = Tally()


@contextmanager
def counted(jobs: int) -> Iterator[None]:
    """Count `jobs` as refused when a limit of the tenant is met inside. Not within a transaction of its own."""
    try:
        yield
    except TooManyRequests as refusal:
        reason = REASONS.get(type(refusal))
        if reason is not None:
            _tally.note(reason, jobs)
        raise


def note(refusal: type[TooManyRequests], jobs: int) -> None:
    """Count `jobs` as refused that were told so one by one. Not within a transaction of its own."""
    if jobs:
        _tally.note(REASONS[refusal], jobs)

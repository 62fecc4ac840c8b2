"""Webhooks as Prometheus metrics, read from the database when somebody scrapes; absent while that does not answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from django.db import Error as DatabaseError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webhooks import vitals
from webhooks.vitals import WebhookVitals

FRESH_SECONDS: Final = 2.0
WAIT_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)

GAUGES: Final[tuple[tuple[str, str, Callable[[WebhookVitals], float]], ...]] = (
    ("webhooks_deliveries_due", "Deliveries whose next try could begin.", lambda v: v.due),
    (
        "webhooks_oldest_due_age_seconds",
        "Since the oldest of them could be tried; those of a receiver that fails wait their turn.",
        lambda v: v.oldest_due_age,
    ),
    ("webhooks_endpoints_failing", "Endpoints whose last try failed and that are not disabled.", lambda v: v.failing),
    ("webhooks_endpoints_disabled_last_day", "Endpoints that were given up within 24 hours.", lambda v: v.disabled),
)


class WebhookCollector(Collector):
    """One read at a time, and one every FRESH_SECONDS."""

    def __init__(self, observe: Callable[[], WebhookVitals] = vitals.observe) -> None:
        self._observe = observe
        self._reading = threading.Lock()
        self._last: tuple[float, WebhookVitals | None] | None = None

    def describe(self) -> list[Metric]:
        """Nothing: else the registry would ask the database while Django starts."""
        return []

    def collect(self) -> Iterator[Metric]:
        seen = self._seen()
        if seen is not None:
            yield from (GaugeMetricFamily(name, says, value=value(seen)) for name, says, value in GAUGES)

    def _seen(self) -> WebhookVitals | None:
        if not self._reading.acquire(timeout=WAIT_SECONDS):
            return None
        try:
            if self._last is None or time.monotonic() - self._last[0] >= FRESH_SECONDS:
                self._last = (time.monotonic(), self._read())
            return self._last[1]
        finally:
            self._reading.release()

    def _read(self) -> WebhookVitals | None:
        try:
            return self._observe()
        except DatabaseError as error:
            logger.warning("metrics of webhooks are absent, the database does not answer: %s", type(error).__name__)
            return None

"""The queue's vitals as Prometheus metrics, read from the database when somebody scrapes.

Any web process tells the same figures. While the database does not answer they are absent, never stale and never zero:
an alert on their absence is the alert for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from django.db import Error as DatabaseError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobs import counters, patience, vitals
from jobs.vitals import Vitals

FRESH_SECONDS: Final = 2.0  # scrapes within this time share one read: scraping must not be a way to load the database
WAIT_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)

# name, what it says, where it is found; the pages of the operators name each (a test compares them)
COUNTERS: Final[tuple[tuple[str, str, Callable[[Vitals], float]], ...]] = (
    (
        "stale_attempt",
        "Endings that came after their claim was lost, and were discarded.",
        lambda v: v.stale_attempts,
    ),
    ("internal_fetch_error", "Attempts that failed for a reason of our own.", lambda v: v.internal_errors),
)
GAUGES: Final[tuple[tuple[str, str, Callable[[Vitals], float]], ...]] = (
    (
        "jobs_oldest_queued_age_seconds",
        "Since the oldest job could have run that may run, does not, and is not held back.",
        lambda v: v.queue.oldest_age,
    ),
    (
        "jobs_queued_past_promise",
        f"Jobs that could have been running for {patience.PROMISE_SECONDS:g} seconds, are not, and are not held back.",
        lambda v: v.queue.past_promise,
    ),
    (
        "jobs_running_past_lease",
        "Jobs marked running whose lease has run out; a sweep takes them back.",
        lambda v: v.queue.past_lease,
    ),
    (
        "jobs_oldest_expired_lease_age_seconds",
        "Since the lease ran out that did so first and is still there; above SWEEP_SECONDS nobody sweeps.",
        lambda v: v.queue.oldest_expired_lease_age,
    ),
    (
        "jobs_messages_unclaimed",
        "Published jobs that no worker claimed within the sweeper's grace.",
        lambda v: v.queue.unclaimed,
    ),
    (
        "jobs_oldest_message_age_seconds",
        "Since the oldest job was published that no worker has claimed.",
        lambda v: v.queue.oldest_message_age,
    ),
    ("jobs_finish_events_waiting", "Ended jobs of which no subscriber was told yet.", lambda v: v.queue.finish_events),
    (
        "jobs_oldest_finish_event_age_seconds",
        "Since the oldest job ended of which no subscriber was told yet.",
        lambda v: v.queue.oldest_finish_event_age,
    ),
    ("jobs_dead_letters", "Jobs that stand failed.", lambda v: v.failures.dead_letters),
    ("jobs_dead_letters_last_day", "Jobs that failed within 24 hours and stand failed.", lambda v: v.failures.last_day),
    (
        "jobs_crash_loops_last_day",
        "Jobs given up within 24 hours since they were lost with their worker again and again.",
        lambda v: v.failures.crash_loops,
    ),
    ("jobs_worker_processes", "Worker processes that were heard of within a lease's time.", lambda v: v.pool.processes),
    ("jobs_worker_slots", "Attempts that those processes can run at once.", lambda v: v.pool.slots),
    ("jobs_worker_slots_busy", "Attempts that ran in them at their last heartbeat.", lambda v: v.pool.busy),
    ("jobs_publisher_leading", "1 while a publisher leads, else 0.", lambda v: float(v.server.publisher_leads)),
    (
        "postgres_oldest_transaction_seconds",
        "Age of the oldest open transaction in this database; it keeps dead rows from being cleaned up.",
        lambda v: v.server.oldest_transaction_age,
    ),
    ("postgres_connections", "Client connections to the server, of all databases.", lambda v: v.server.connections),
    ("postgres_connections_max", "Client connections that the server allows.", lambda v: v.server.max_connections),
)
STAGES: Final = ("due", "delayed", "published", "running")
HELD: Final = "jobs_held_back"
HOLDS: Final = ("tenant_paused", "host_paused", "host_blocked", "tenant_limit", "host_rate")
REFUSED: Final = "jobs_refused"


class QueueCollector(Collector):
    """Turns vitals into metrics, at most one read at a time and one every `fresh_seconds`."""

    def __init__(
        self,
        observe: Callable[[], Vitals] = vitals.observe,
        *,
        clock: Callable[[], float] = time.monotonic,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._reading = threading.Lock()
        self._last: tuple[float, Vitals | None] | None = None

    def describe(self) -> list[Metric]:
        """Nothing: without this the registry would collect, and so ask the database, while Django starts."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics, or none while the database does not answer."""
        seen = self._seen()
        if seen is not None:
            yield from _metrics(seen)

    def _seen(self) -> Vitals | None:
        # A database that hangs must not hold a thread for each scrape: who waits for another's read gives up soon.
        if not self._reading.acquire(timeout=WAIT_SECONDS):
            return None
        try:
            if self._last is None or self._clock() - self._last[0] >= self._fresh_seconds:
                seen = self._read()
                self._last = (self._clock(), seen)
            return self._last[1]
        finally:
            self._reading.release()

    def _read(self) -> Vitals | None:
        try:
            return self._observe()
        except DatabaseError as error:
            logger.warning("the queue's metrics are absent, the database does not answer: %s", type(error).__name__)
            return None


def _metrics(seen: Vitals) -> Iterator[Metric]:
    for name, says, value in GAUGES:
        yield GaugeMetricFamily(name, says, value=value(seen))
    unfinished = GaugeMetricFamily("jobs_unfinished", "Jobs that are not final, by where they stand.", labels=["stage"])
    for stage in STAGES:
        unfinished.add_metric([stage], getattr(seen.queue, stage))
    yield unfinished
    held = GaugeMetricFamily(
        HELD, "Due jobs that would not run in an empty pool either, by what holds them back.", labels=["by"]
    )
    for reason in HOLDS:
        held.add_metric([reason], seen.held.by.get(reason, 0))
    yield held
    refused = CounterMetricFamily(REFUSED, "Jobs refused for a limit of their tenant, by the limit.", labels=["limit"])
    for limit in counters.REFUSED:
        refused.add_metric([limit], seen.refused.get(limit, 0))
    yield refused
    for name, says, value in COUNTERS:
        yield CounterMetricFamily(name, says, value=value(seen))

"""Lets other processes know why due jobs wait: the leading publisher keeps one row, `DispatchReport`.

Its document: `window_full`, whether the pool has all it can hold; `hosts`, {host: [reason, until]} of hosts that may
not go and have jobs, where `until` is an RFC 3339 time or null; `tenants`, {tenant id: reason} of tenants that may not
go and have jobs; `waiting_tenants`, how many tenants have jobs that are not published.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from django.db.models.functions import Now

from core.encoding import rfc3339
from jobs.dispatcher import Dispatcher
from jobs.models import DispatchReport

AT_MOST_EVERY: Final = 0.5  # seconds between two writes
AT_LEAST_EVERY: Final = 5.0  # while work waits, so that a reader can tell a report from one whose publisher is gone
MOST_NAMED: Final = 1000  # hosts, and tenants


class Reporter:
    """Writes the report of one dispatcher: when it changes, and now and then while work waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._written: dict[str, Any] | None = None
        self._written_at = -AT_LEAST_EVERY
        self._looked_at = -AT_MOST_EVERY

    def report(self, dispatcher: Dispatcher) -> bool:
        """Whether a report was written. Call it after each pass; most calls do nothing."""
        now = self._clock()
        if now - self._looked_at < AT_MOST_EVERY:
            return False
        self._looked_at = now
        found = document(dispatcher)
        aged = now - self._written_at >= AT_LEAST_EVERY and found["waiting_tenants"] > 0
        if found == self._written and not aged:
            return False
        DispatchReport.objects.update_or_create(pk=1, defaults={"at": Now(), "document": found})
        self._written, self._written_at = found, now
        return True


def document(dispatcher: Dispatcher) -> dict[str, Any]:
    """What the dispatcher knows since its last pass."""
    dispatcher.survey()
    order = dispatcher.order
    hosts = ((host, hold) for host, hold in dispatcher.held_hosts.items() if order.waits_for(host))
    tenants = list(dict.fromkeys(lane.tenant for lane in order.waiting()))
    reasons = ((tenant, order.held_back(tenant)) for tenant in tenants)
    return {
        "window_full": dispatcher.room <= 0,
        "hosts": {host: [hold.reason, _written(hold.until)] for host, hold in islice(hosts, MOST_NAMED)},
        "tenants": dict(islice(((str(tenant), reason) for tenant, reason in reasons if reason), MOST_NAMED)),
        "waiting_tenants": len(tenants),
    }


def _written(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(datetime.fromtimestamp(seconds, UTC))

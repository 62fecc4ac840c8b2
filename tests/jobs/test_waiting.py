"""Why a queued job is not running, and when it can be at the earliest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.models import Job
from jobs.states import State
from jobs.waiting import MEANINGS, NOTHING, Facts, WaitingOn, explain

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
PAST, SOON, LATER = NOW - timedelta(minutes=1), NOW + timedelta(seconds=5), NOW + timedelta(hours=1)

BLOCKED = Facts(blocked_until=LATER)
FULL = Facts(window_full=True, waiting_tenants=2)


def queued(**values: Any) -> Job:
    return Job(**({"state": State.QUEUED, "reason": "submitted", "eligible_at": PAST} | values))


@pytest.mark.parametrize(
    ("job", "facts", "on", "eligible_at"),
    [
        # not due yet
        (queued(run_at=LATER, eligible_at=LATER), NOTHING, "run_at", LATER),
        (queued(eligible_at=SOON, reason="http_503"), NOTHING, "retry_backoff", SOON),
        (queued(run_at=PAST, eligible_at=SOON, reason="http_503"), NOTHING, "retry_backoff", SOON),
        (queued(eligible_at=SOON, reason="host_rate"), NOTHING, "host_rate", SOON),
        (queued(run_at=PAST, eligible_at=SOON, reason="host_blocked"), NOTHING, "host_blocked", SOON),
        (queued(eligible_at=SOON, reason="host_paused"), Facts(host_paused=True), "host_paused", None),
        (queued(eligible_at=SOON, reason="host_paused"), NOTHING, "host_paused", SOON),
        (queued(run_at=SOON, eligible_at=SOON), BLOCKED, "run_at", LATER),
        (queued(run_at=LATER, eligible_at=LATER), Facts(tenant_paused=True), "run_at", LATER),
        (queued(run_at=LATER, eligible_at=LATER), FULL, "run_at", LATER),
        # due, and with the bus
        (queued(published_at=PAST), FULL, "pool_busy", PAST),
        (queued(published_at=PAST), Facts(tenant_paused=True, host_paused=True), "pool_busy", PAST),
        (queued(published_at=PAST), BLOCKED, "pool_busy", LATER),
        # due, and held back
        (queued(), Facts(tenant_paused=True), "tenant_paused", None),
        (queued(), Facts(host_paused=True), "host_paused", None),
        (queued(), Facts(tenant_paused=True, host_paused=True, blocked_until=LATER), "tenant_paused", None),
        (queued(), Facts(host_paused=True, blocked_until=LATER), "host_paused", None),
        (queued(), BLOCKED, "host_blocked", LATER),
        (queued(eligible_at=PAST, reason="host_rate"), BLOCKED, "host_blocked", LATER),
        (queued(), Facts(blocked_until=PAST), "pool_busy", PAST),
        (queued(), Facts(host_reason="host_rate", host_until=SOON), "host_rate", SOON),
        (queued(), Facts(host_reason="host_rate"), "host_rate", PAST),
        (queued(), Facts(tenant_reason="tenant_limit"), "tenant_limit", PAST),
        (queued(), Facts(tenant_reason="tenant_limit", host_reason="host_rate"), "tenant_limit", PAST),
        # what the rows deny, though a report of some seconds ago says it
        (queued(), Facts(host_reason="host_paused"), "pool_busy", PAST),
        (queued(), Facts(host_reason="host_blocked", host_until=LATER), "pool_busy", PAST),
        (queued(), Facts(tenant_reason="tenant_paused"), "pool_busy", PAST),
        # due, and in line
        (queued(), FULL, "fair_share", PAST),
        (queued(reason="host_rate"), FULL, "fair_share", PAST),
        (queued(), Facts(window_full=True, waiting_tenants=1), "pool_busy", PAST),
        (queued(), Facts(waiting_tenants=5), "pool_busy", PAST),
        (queued(), NOTHING, "pool_busy", PAST),
        # not waiting at all
        (queued(state=State.RUNNING), BLOCKED, None, PAST),
        (queued(state=State.SUCCEEDED), Facts(tenant_paused=True), None, PAST),
        (queued(state=State.CANCELLED, eligible_at=LATER), NOTHING, None, LATER),
    ],
)
def test_the_reason_and_the_time(job: Job, facts: Facts, on: str | None, eligible_at: datetime | None) -> None:
    waiting = explain(job, facts, now=NOW)
    assert (waiting.on, waiting.eligible_at) == (on, eligible_at)


def test_every_reason_has_a_meaning_for_callers() -> None:
    assert list(MEANINGS) == list(WaitingOn)

"""What would become of a job if it were submitted now. Nothing is stored, and nothing of a limit is used up.

The start is estimated: not before the job is due and its host's block is over; behind the tenant's own jobs for the
same host and of the same priority, at the host's rate; and, while the pool is full, behind the tenant's own queued jobs
at its share of the pool. What others will submit, and how long fetches will take, nobody knows.
"""

from __future__ import annotations

import statistics
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from jobs import surroundings
from jobs.host_policies import HostView, view
from jobs.models import Job
from jobs.states import State
from jobs.submission import Submission
from jobs.waiting import Facts, Waiting, WaitingOn, explain
from tenants.models import Tenant

COUNT_LIMIT: Final = 10_000
"""Jobs that are counted ahead of a plan; with more, the true start is later."""
SAMPLE: Final = 20
UNKNOWN_JOB_SECONDS: Final = 1.0

_BY_INDEX: Final = "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
_AHEAD: Final = """
SELECT statement_timestamp(),
    (SELECT count(*) FROM (
        SELECT FROM jobs_job WHERE state = 'queued' AND published_at IS NULL AND priority = %(priority)s
        AND tenant_id = %(tenant)s AND host = %(host)s AND eligible_at <= statement_timestamp() LIMIT %(limit)s) lane),
    (SELECT count(*) FROM (
        SELECT FROM jobs_job WHERE tenant_id = %(tenant)s AND state = 'queued' LIMIT %(limit)s) queued),
    (SELECT coalesce(sum(slots), 0) FROM jobs_workerprocess
        WHERE seen_at > statement_timestamp() - %(lease)s * interval '1 second'),
    (SELECT array_agg(extract(epoch FROM finished_at - claimed_at)::float) FROM (
        SELECT finished_at, claimed_at FROM jobs_job WHERE tenant_id = %(tenant)s AND state = 'succeeded'
        ORDER BY id DESC LIMIT %(sample)s) lately)
"""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a new job would find, at `now` by the database's clock."""

    now: datetime
    lane: int  # the tenant's due jobs of its priority for its host
    queued: int  # all of the tenant's
    slots: int  # of workers that are alive
    job_seconds: float  # that the tenant's last jobs took


@dataclass(frozen=True, slots=True)
class Plan:
    """`starts_at` is None where nobody can know: somebody has paused something, or no worker is alive."""

    submission: Submission
    host: HostView
    waiting: Waiting
    ahead: Ahead
    starts_at: datetime | None


def plan(tenant: Tenant, submission: Submission) -> Plan:
    """The plan of a checked submission. A handful of queries, of bounded cost."""
    ahead = _look_ahead(tenant.id, submission)
    job = _job(tenant, submission, ahead.now)
    facts = surroundings.look([job]).of(job)
    waiting = explain(job, facts, now=ahead.now)
    host = view(submission.target.host)
    return Plan(submission, host, waiting, ahead, _start(tenant, waiting, facts, host, ahead))


def queue_room(tenant: Tenant, queued: int) -> int | None:
    """How many more jobs may be queued; None without a limit, or where more are queued than were counted."""
    limit = tenant.max_queued
    if limit is None or (queued >= COUNT_LIMIT and limit > COUNT_LIMIT):
        return None
    return max(0, limit - queued)


def _look_ahead(tenant_id: uuid.UUID, submission: Submission) -> Ahead:
    parameters: dict[str, Any] = {
        "tenant": tenant_id,
        "priority": submission.priority.value,
        "host": submission.target.host,
        "limit": COUNT_LIMIT,
        "lease": settings.LEASE_SECONDS,
        "sample": SAMPLE,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_BY_INDEX)
        cursor.execute(_AHEAD, parameters)
        now, lane, queued, slots, lately = cursor.fetchone()
    seconds = statistics.mean(lately) if lately else UNKNOWN_JOB_SECONDS
    return Ahead(now, int(lane), int(queued), int(slots), max(seconds, 0.001))


def _job(tenant: Tenant, submission: Submission, now: datetime) -> Job:
    """As it would be stored."""
    return Job(
        tenant=tenant,
        host=submission.target.host,
        priority=submission.priority,
        state=State.QUEUED,
        run_at=submission.run_at,
        eligible_at=max(now, submission.run_at or now),
    )


def _start(tenant: Tenant, waiting: Waiting, facts: Facts, host: HostView, ahead: Ahead) -> datetime | None:
    if waiting.eligible_at is None or facts.tenant_paused or host.paused or not ahead.slots:
        return None
    seconds = max(host_seconds(host, ahead.lane), pool_seconds(tenant, facts, ahead))
    # What waits for a later time finds another queue then: of that one nothing is known.
    later = waiting.on == WaitingOn.RUN_AT
    return max(ahead.now + timedelta(seconds=0 if later else seconds), waiting.eligible_at)


def host_seconds(host: HostView, lane: int) -> float:
    """Until the host's rate has let the jobs in the lane pass, and then one more."""
    return max(0.0, (lane + 1 - host.burst) / (host.rate * host.pace))


def pool_seconds(tenant: Tenant, facts: Facts, ahead: Ahead) -> float:
    """Until the tenant's queued jobs have had their turns in a full pool."""
    busy = facts.window_full or facts.tenant_reason == WaitingOn.TENANT_LIMIT
    if not busy:
        return 0.0
    share = ahead.slots / max(1, facts.waiting_tenants)
    at_once = share if tenant.max_running is None else min(share, tenant.max_running)
    return (ahead.queued + 1) * ahead.job_seconds / at_once

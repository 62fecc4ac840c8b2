"""The only writer of `Job.state`. Every move is one statement that repeats its condition, so that whoever comes second
changes nothing and learns it by name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from core.errors import Conflict, NotFound
from jobs import counters, notices
from jobs.models import Job
from jobs.retries import SAFE_TO_REPEAT, Backoff
from jobs.states import FINAL, Outcome, State

LOSSES_UNTIL_CRASH_LOOP = 3


class AlreadyFinal(Conflict):
    """The job has ended; nothing can be cancelled any more."""

    status: ClassVar[HTTPStatus] = HTTPStatus.CONFLICT
    code: ClassVar[str] = "already_final"
    default_detail: ClassVar[str] = "The job has already ended."


class NotRetryable(Conflict):
    """Only a job that failed or was cancelled can start anew."""

    code: ClassVar[str] = "not_retryable"
    default_detail: ClassVar[str] = "Only a job that failed or was cancelled can be retried."


@dataclass(frozen=True, slots=True)
class ClaimTicket:
    """What a message asks for: this job, if it still stands at this claim number. `host` is where it will go."""

    job_id: uuid.UUID
    claim_no: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that is ours until its lease runs out, with all that the attempt needs."""

    job_id: uuid.UUID
    claim_no: int
    tenant_id: uuid.UUID
    attempts: int
    max_attempts: int
    url: str
    method: str
    headers: dict[str, str]
    body: bytes
    follow_redirects: bool
    retry_unsafe: bool
    deadline_seconds: int
    max_bytes: int
    respect_robots: bool = False
    proxy: str = field(default="", repr=False)  # sealed (core.proxies), or empty


_CLAIM = """
WITH wanted AS (
    SELECT j.id FROM jobs_job j
    JOIN unnest(%(ids)s::uuid[], %(claim_nos)s::int[]) AS t (id, claim_no) ON t.id = j.id AND t.claim_no = j.claim_no
    WHERE j.state = 'queued' AND j.executor = ANY(%(executors)s)
    ORDER BY j.id  -- two processes that claim overlapping rows in different orders would deadlock
    FOR UPDATE OF j
)
UPDATE jobs_job j SET
    state = 'running', reason = 'claimed', claim_no = j.claim_no + 1, attempts = j.attempts + 1,
    lease_expires_at = now() + %(lease)s * interval '1 second', worker = %(worker)s,
    started_at = coalesce(j.started_at, now()), claimed_at = now()
FROM wanted, tenants_tenant t WHERE j.id = wanted.id AND t.id = j.tenant_id
RETURNING j.id, j.claim_no, j.tenant_id, j.attempts, j.max_attempts, j.url, j.method, j.headers, j.body,
    j.follow_redirects, j.retry_unsafe, j.deadline_seconds, j.max_bytes,
    coalesce(j.respect_robots, t.respect_robots), coalesce(nullif(j.proxy, ''), t.proxy)
"""


def claim(tickets: Sequence[ClaimTicket], *, worker: str, executors: Sequence[str]) -> dict[uuid.UUID, ClaimedJob]:
    """Take the jobs that are still to be had, by job id. A ticket without an answer is somebody else's: drop it."""
    parameters: dict[str, Any] = {
        "ids": [ticket.job_id for ticket in tickets],
        "claim_nos": [ticket.claim_no for ticket in tickets],
        "executors": list(executors),
        "lease": settings.LEASE_SECONDS,
        "worker": worker,
    }
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, parameters)
        return {row[0]: _claimed(row) for row in cursor.fetchall()}


def _claimed(row: tuple[Any, ...]) -> ClaimedJob:
    values = list(row)
    values[7] = json.loads(values[7]) if isinstance(values[7], str) else values[7]
    values[8] = bytes(values[8] or b"")
    return ClaimedJob(*values)


@dataclass(frozen=True, slots=True)
class Postponed:
    """A published job whose host may not be fetched now: back to the backlog for `delay_seconds`, and why."""

    ticket: ClaimTicket
    delay_seconds: float
    reason: str  # host_rate, host_blocked or host_paused


_PUT_BACK = """
WITH wanted AS (
    SELECT j.id, t.delay, t.reason FROM jobs_job j
    JOIN unnest(%(ids)s::uuid[], %(claim_nos)s::int[], %(delays)s::float8[], %(reasons)s::text[])
        AS t (id, claim_no, delay, reason) ON t.id = j.id AND t.claim_no = j.claim_no
    WHERE j.state = 'queued' AND j.published_at IS NOT NULL
    ORDER BY j.id  -- as claims do
    FOR UPDATE OF j
)
UPDATE jobs_job j SET
    published_at = NULL, eligible_at = now() + w.delay * interval '1 second', reason = w.reason
FROM wanted w WHERE w.id = j.id
RETURNING j.id
"""


def put_back(postponed: Sequence[Postponed]) -> set[uuid.UUID]:
    """Return published jobs that nobody has claimed to the backlog; no attempt is used and no event written.

    Returns those that moved: a job that was claimed, cancelled or put back meanwhile is left as it is.
    """
    parameters: dict[str, Any] = {
        "ids": [item.ticket.job_id for item in postponed],
        "claim_nos": [item.ticket.claim_no for item in postponed],
        "delays": [item.delay_seconds for item in postponed],
        "reasons": [item.reason for item in postponed],
    }
    with connection.cursor() as cursor:
        cursor.execute(_PUT_BACK, parameters)
        return {row[0] for row in cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended and where the job goes; matches only while the job is running under this claim."""

    job_id: uuid.UUID
    claim_no: int
    state: State
    outcome: Outcome
    reason: str
    delay_seconds: float = 0.0  # for a job that goes back to queued
    uses_attempt: bool = True
    error_code: str = ""
    error_detail: str = ""
    http_status: int | None = None
    result_key: str = ""
    result_bytes: int | None = None
    result_content_type: str = ""
    result_sha256: str = ""
    result_final_url: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    redirects: list[dict[str, Any]] = field(default_factory=list)
    response_headers: list[tuple[str, str]] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    body_snippet: str = ""
    internal_error: bool = False  # a fault of this service, whatever code it ended with
    object_left: bool = False  # an object may lie in storage that no result names; the sweeper looks


_FINISH = """
WITH input AS (
    SELECT * FROM jsonb_to_recordset(%(endings)s::jsonb) AS i (
        job_id uuid, claim_no int, state text, outcome text, reason text, delay_seconds float8, uses_attempt boolean,
        error_code text, error_detail text, http_status int, result_key text, result_bytes bigint,
        result_content_type text, result_sha256 text, result_final_url text, timings jsonb, redirects jsonb,
        response_headers jsonb, evidence jsonb, body_snippet text, object_left boolean)
), ended AS (
    UPDATE jobs_job j SET
        -- a cancel that came during the attempt wins over another try, but not over an end
        state = CASE WHEN i.state = 'queued' AND j.cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE i.state END,
        finished_at = CASE WHEN i.state <> 'queued' OR j.cancel_requested_at IS NOT NULL THEN now() END,
        reason = CASE WHEN i.state = 'queued' AND j.cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE i.reason END,
        lease_expires_at = NULL,
        proxy = CASE WHEN i.state = 'succeeded' THEN '' ELSE j.proxy END, -- a failed job may be retried, and needs it
        published_at = CASE WHEN i.state = 'queued' THEN NULL ELSE j.published_at END,
        eligible_at = CASE WHEN i.state = 'queued' THEN now() + i.delay_seconds * interval '1 second'
                           ELSE j.eligible_at END,
        attempts = j.attempts - (NOT i.uses_attempt)::int,
        error_code = CASE WHEN i.error_code <> '' THEN i.error_code ELSE j.error_code END,
        error_detail = CASE WHEN i.error_code <> '' THEN i.error_detail ELSE j.error_detail END,
        error_http_status = CASE WHEN i.error_code <> '' THEN i.http_status ELSE j.error_http_status END,
        error_at = CASE WHEN i.error_code <> '' THEN now() ELSE j.error_at END,
        result_key = i.result_key, result_bytes = i.result_bytes, result_content_type = i.result_content_type,
        result_http_status = CASE WHEN i.result_key <> '' THEN i.http_status END,
        result_sha256 = i.result_sha256, result_final_url = i.result_final_url,
        result_expires_at = CASE WHEN i.result_key <> '' THEN now() + %(retention)s * interval '1 second' END
    FROM input i
    WHERE j.id = i.job_id AND j.claim_no = i.claim_no AND j.state = 'running'
    RETURNING j.id, j.claim_no, j.attempts + (NOT i.uses_attempt)::int AS number, j.claimed_at, j.worker
)
INSERT INTO jobs_attempt (job_id, claim_no, number, outcome, error_code, error_detail, http_status, worker, started_at,
    finished_at, timings, redirects, response_headers, evidence, body_snippet, object_left)
SELECT e.id, e.claim_no, e.number, i.outcome, i.error_code, i.error_detail, i.http_status, e.worker, e.claimed_at,
    now(), i.timings, i.redirects, i.response_headers, i.evidence, i.body_snippet, i.object_left
FROM ended e JOIN input i ON i.job_id = e.id AND i.claim_no = e.claim_no
RETURNING job_id, claim_no
"""

_FIELDS = tuple(field.name for field in fields(Ending))  # asdict() would copy every header, as dear as the statement


def finish(endings: Sequence[Ending]) -> set[tuple[uuid.UUID, int]]:
    """Write how attempts ended, with their records, in one statement.

    Returns the (job id, claim_no) that were still ours; an ending that is not among them came too late, and nothing of
    it was written.
    """
    document = json.dumps([{name: getattr(ending, name) for name in _FIELDS} for ending in endings], default=str)
    with connection.cursor() as cursor:
        cursor.execute(_FINISH, {"endings": document, "retention": settings.RETENTION_DAYS * 86400})
        written = {(row[0], row[1]) for row in cursor.fetchall()}
    ours = [ending for ending in endings if ending.internal_error and (ending.job_id, ending.claim_no) in written]
    counters.add(counters.INTERNAL_ERRORS, len(ours))
    return written


_ENDED = """
SELECT a.job_id, a.claim_no FROM jobs_attempt a
JOIN unnest(%s::uuid[], %s::int[]) AS c (job_id, claim_no) ON c.job_id = a.job_id AND c.claim_no = a.claim_no
WHERE a.outcome <> 'lease_expired'
"""


def ended_claims(claims: Sequence[tuple[uuid.UUID, int]]) -> set[tuple[uuid.UUID, int]]:
    """Which of `claims` have ended by their own worker's word: the re-read after a write whose answer was lost."""
    with connection.cursor() as cursor:
        cursor.execute(_ENDED, [[job_id for job_id, _ in claims], [claim_no for _, claim_no in claims]])
        return {(row[0], row[1]) for row in cursor.fetchall()}


_EXPIRE = """
WITH judged AS (
    SELECT j.id, CASE
        WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
        WHEN j.losses + 1 >= %(crash_loop)s THEN 'crash_loop'
        WHEN j.method <> ALL(%(safe)s) AND NOT j.retry_unsafe THEN 'unsafe_to_retry'
        WHEN j.attempts >= j.max_attempts THEN 'lease_expired'
        ELSE 'retry' END AS verdict
    FROM jobs_job j WHERE j.state = 'running' AND j.lease_expires_at < now()
        AND (j.lease_expires_at, j.id) > (%(after_time)s, %(after_id)s)
    ORDER BY j.lease_expires_at, j.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE jobs_job j SET
        state = CASE v.verdict WHEN 'retry' THEN 'queued' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END,
        reason = CASE v.verdict WHEN 'retry' THEN 'lease_expired' ELSE v.verdict END,
        finished_at = CASE WHEN v.verdict <> 'retry' THEN now() END,
        lease_expires_at = NULL,
        losses = j.losses + 1,
        published_at = CASE WHEN v.verdict = 'retry' THEN NULL ELSE j.published_at END,
        eligible_at = CASE WHEN v.verdict = 'retry'
            THEN now() + (%(ceilings)s::float8[])[j.attempts] * random() * interval '1 second'
            ELSE j.eligible_at END,
        error_code = CASE WHEN v.verdict IN ('retry', 'cancelled') THEN 'lease_expired' ELSE v.verdict END,
        error_detail = CASE v.verdict
            WHEN 'crash_loop' THEN 'The job was lost with its worker too often.'
            WHEN 'unsafe_to_retry' THEN 'The worker was lost; what may have reached the target is not repeated.'
            ELSE 'The worker that ran the job was lost.' END,
        error_http_status = NULL, error_at = now()
    FROM judged v WHERE j.id = v.id
    RETURNING j.id, j.claim_no, j.attempts, j.worker, j.claimed_at, j.error_code, j.error_detail
)
INSERT INTO jobs_attempt (job_id, claim_no, number, outcome, error_code, error_detail, worker, started_at,
    finished_at, timings, redirects, response_headers, evidence, body_snippet, object_left)
SELECT id, claim_no, attempts, 'lease_expired', error_code, error_detail, worker, claimed_at,
    now(), '{}', '[]', '[]', '{}', '', true
FROM ended
RETURNING job_id
"""


_NEXT_EXPIRED = """
SELECT lease_expires_at, id FROM jobs_job
WHERE state = 'running' AND lease_expires_at < now() AND (lease_expires_at, id) > (%s, %s)
ORDER BY lease_expires_at, id LIMIT 1
"""

LeaseCursor = tuple[datetime, uuid.UUID]
FIRST_LEASE: LeaseCursor = (datetime(1970, 1, 1, tzinfo=UTC), uuid.UUID(int=0))


def next_expired_lease(after: LeaseCursor) -> LeaseCursor | None:
    """Where the next lease that ran out stands behind `after`, in the order in which they are swept."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT_EXPIRED, after)
        row = cursor.fetchone()
    return None if row is None else (row[0], row[1])


def expire_leases(limit: int, after: LeaseCursor = FIRST_LEASE) -> list[uuid.UUID]:
    """Take up to `limit` jobs back whose worker let the lease run out: to queued with a backoff, or to an end."""
    backoff = Backoff(settings.RETRY_BASE_SECONDS, settings.RETRY_CAP_SECONDS)
    parameters: dict[str, Any] = {
        "limit": limit,
        "after_time": after[0],
        "after_id": after[1],
        "crash_loop": LOSSES_UNTIL_CRASH_LOOP,
        "safe": sorted(SAFE_TO_REPEAT),
        "ceilings": [backoff.ceiling(attempt) for attempt in range(1, 11)],
    }
    with connection.cursor() as cursor:
        cursor.execute(_EXPIRE, parameters)
        return [row[0] for row in cursor.fetchall()]


def request_cancel(job_id: uuid.UUID, tenant_id: uuid.UUID) -> Job:
    """Cancel a queued job at once, or ask the worker of a running one to stop; asking again changes nothing.

    Raises NotFound when the tenant has no such job, AlreadyFinal when it has ended.
    """
    jobs = Job.objects.filter(pk=job_id, tenant_id=tenant_id)
    for _ in range(3):  # a job may move between the two writes, but only so often
        queued = jobs.filter(state=State.QUEUED)
        if queued.update(state=State.CANCELLED, reason="cancelled", finished_at=Now(), cancel_requested_at=Now()):
            break
        if jobs.filter(state=State.RUNNING, cancel_requested_at=None).update(cancel_requested_at=Now()):
            transaction.on_commit(lambda: notices.cancel_wanted(job_id))
            break
        job = jobs.first()
        if job is None:
            raise NotFound
        if job.state in FINAL:
            raise AlreadyFinal
        if job.cancel_requested_at is not None:
            return job
    job = jobs.get()
    if job.state in FINAL and job.state != State.CANCELLED:
        raise AlreadyFinal  # it ended in the same moment, and no cancel came into it
    return job


# The number of attempts begins anew, so it cannot fence; claim_no goes on.
_RESTART = """
UPDATE jobs_job SET
    state = 'queued', reason = %(reason)s, attempts = 0, losses = 0, eligible_at = now(),
    finished_at = NULL, published_at = NULL, finish_published_at = NULL, cancel_requested_at = NULL
WHERE id IN (
    SELECT id FROM jobs_job WHERE id = ANY(%(ids)s) AND state = ANY(%(states)s)
    ORDER BY id FOR UPDATE {held})
RETURNING id
"""
_RESTART_FREE: Final = _RESTART.format(held="SKIP LOCKED")
_RESTART_ALL: Final = _RESTART.format(held="")


RESTARTABLE = (State.FAILED, State.CANCELLED)


def restart(
    ids: Sequence[uuid.UUID], *, reason: str, states: Sequence[State] = RESTARTABLE, wait: bool = False
) -> list[uuid.UUID]:
    """Give jobs that stand in one of `states` by now a fresh set of attempts; returns those that moved.

    A job that somebody holds is left to them, or waited for with `wait`.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _RESTART_ALL if wait else _RESTART_FREE,
            {"ids": list(ids), "reason": reason, "states": [state.value for state in states]},
        )
        moved = [row[0] for row in cursor.fetchall()]
    if moved:
        transaction.on_commit(notices.work_waits)
    return moved


def check_retryable(job_id: uuid.UUID, tenant_id: uuid.UUID) -> Job:
    """The tenant's job, which may be started anew. Raises NotFound when there is none, NotRetryable in other states."""
    job = Job.objects.filter(pk=job_id, tenant_id=tenant_id).first()
    if job is None:
        raise NotFound
    if job.state not in RESTARTABLE:
        raise NotRetryable(f"The job is {job.state}; only one that failed or was cancelled can be retried.")
    return job


def retry(job_id: uuid.UUID, tenant_id: uuid.UUID) -> Job:
    """The caller wants the job tried again. Raises what `check_retryable` raises, also when another was faster."""
    job = check_retryable(job_id, tenant_id)
    # Right after its end the publisher holds the job for a moment, to tell of that end.
    if not restart([job_id], reason="retried", wait=True):
        raise NotRetryable
    job.refresh_from_db()
    return job

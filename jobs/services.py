"""Writes of the command side that touch several rows."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from core.ids import new_id
from jobs import admission, idempotency, notices, refusals, transitions
from jobs.idempotency import IdempotencyKeyInFlight, KeyUse
from jobs.models import Job
from jobs.submission import Submission
from tenants import throttle
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the caller is told of an accepted job; `replayed` when an earlier request with the same key made it."""

    job_id: uuid.UUID
    created_at: datetime
    replayed: bool = False


def submit(tenant: Tenant, submission: Submission, use: KeyUse | None = None) -> Receipt:
    """Store the job, once per idempotency key, and wake the publisher after the commit.

    Raises SubmitRateExceeded, TooManyQueued, IdempotencyKeyReused, IdempotencyKeyInFlight.
    """
    with refusals.counted(jobs=1):
        throttle.take(tenant, 1)  # first of all: who sends too fast costs no query
        return _submit(tenant, submission) if use is None else _submit_with_key(tenant, submission, use)


def _submit(tenant: Tenant, submission: Submission) -> Receipt:
    if admission.counts_exactly(tenant):
        with transaction.atomic():
            admission.check_room(tenant, 1)
            return _insert(tenant.id, submission)
    # One INSERT is a transaction of its own; BEGIN and COMMIT around it would be two more round trips.
    admission.check_room(tenant, 1)
    return _insert(tenant.id, submission)


def _submit_with_key(tenant: Tenant, submission: Submission, use: KeyUse) -> Receipt:
    for _ in range(2):  # the second look sees what another request committed between the first look and its lock
        receipt = _submit_once(tenant, submission, use)
        if receipt is not None:
            return receipt
    raise IdempotencyKeyInFlight


def _submit_once(tenant: Tenant, submission: Submission, use: KeyUse) -> Receipt | None:
    with transaction.atomic():
        earlier = idempotency.look_up(use)
        if earlier is not None:
            return Receipt(earlier.job_id, earlier.created_at, replayed=True)
        admission.check_room(tenant, 1)  # after the look-up: a job that is there already needs no room
        return insert_with_key(tenant.id, submission, use)


def retry(tenant: Tenant, job_id: uuid.UUID) -> Job:
    """Start a job of the tenant's anew that failed or was cancelled; it counts as one more submitted.

    Raises NotFound, NotRetryable, SubmitRateExceeded, TooManyQueued.
    """
    transitions.check_retryable(job_id, tenant.id)
    with refusals.counted(jobs=1):
        throttle.take(tenant, 1)
        with transaction.atomic():
            admission.check_room(tenant, 1)
            return transitions.retry(job_id, tenant.id)


def insert_with_key(tenant_id: uuid.UUID, submission: Submission, use: KeyUse) -> Receipt | None:
    """Store the job and its key in one statement; None, with the transaction undone, where the key is taken already.

    That is so when another request committed it after our look-up and before our lock.
    """
    parameters = {**job_parameters(tenant_id, submission), **idempotency.remember_parameters(use)}
    with connection.cursor() as cursor:
        cursor.execute(_INSERT_WITH_KEY, parameters)
        created_at, remembered = cursor.fetchone()
    if not remembered:
        transaction.set_rollback(True)
        return None
    transaction.on_commit(notices.work_waits)
    return Receipt(parameters["id"], created_at)


def _insert(tenant_id: uuid.UUID, submission: Submission) -> Receipt:
    parameters = job_parameters(tenant_id, submission)
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, parameters)
        _, created_at = cursor.fetchone()
    transaction.on_commit(notices.work_waits)
    return Receipt(parameters["id"], created_at)


# Written out, since every post runs it and the ORM takes four times as long to say the same; what a new job does not
# choose stands in the second half, and a test holds it against the model's defaults.
_INSERT = """
INSERT INTO jobs_job (
    id, tenant_id, url, host, method, headers, body, priority, callback_url, tags, run_at, eligible_at,
    deadline_seconds, max_attempts, max_bytes, retry_unsafe, executor, follow_redirects, respect_robots, proxy,
    state, reason, claim_no, worker, attempts, losses, error_code, error_detail,
    result_key, result_content_type, result_sha256, result_final_url)
VALUES (
    %(id)s, %(tenant_id)s, %(url)s, %(host)s, %(method)s, %(headers)s, %(body)s, %(priority)s, %(callback_url)s,
    %(tags)s, %(run_at)s, greatest(statement_timestamp(), %(run_at)s),
    %(deadline_seconds)s, %(max_attempts)s, %(max_bytes)s, %(retry_unsafe)s, %(executor)s, %(follow_redirects)s,
    %(respect_robots)s, %(proxy)s,
    'queued', 'submitted', 0, '', 0, 0, '', '', '', '', '', '')
RETURNING id, created_at
"""
_INSERT_WITH_KEY = f"""
WITH job AS ({_INSERT}), record AS ({idempotency.REMEMBER})
SELECT created_at, EXISTS (SELECT FROM record) FROM job
"""  # noqa: S608  both parts are constants


def job_parameters(tenant_id: uuid.UUID, submission: Submission) -> dict[str, Any]:
    """What a new job chooses, with an id of its own, by column."""
    return {
        "id": new_id(),
        "tenant_id": tenant_id,
        "url": submission.target.url,
        "host": submission.target.host,
        "method": submission.method,
        "headers": json.dumps(submission.headers),
        "body": submission.body,
        "priority": submission.priority.value,
        "callback_url": submission.callback_url,
        "tags": submission.tags,
        "run_at": submission.run_at,
        "deadline_seconds": submission.deadline_seconds,
        "max_attempts": submission.max_attempts,
        "max_bytes": submission.max_bytes,
        "retry_unsafe": submission.retry_unsafe,
        "executor": submission.executor,
        "follow_redirects": submission.follow_redirects,
        "respect_robots": submission.respect_robots,
        "proxy": submission.proxy,
    }

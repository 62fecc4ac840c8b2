"""Writes of the command side that touch several rows."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Greatest, Now

from jobs import idempotency, wakeup
from jobs.idempotency import IdempotencyKeyInFlight, KeyUse
from jobs.models import Job
from jobs.submission import Submission


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the caller is told of an accepted job; `replayed` when an earlier request with the same key made it."""

    job_id: uuid.UUID
    created_at: datetime
    replayed: bool = False


def submit(tenant_id: uuid.UUID, submission: Submission, use: KeyUse | None = None) -> Receipt:
    """Store the job, once per idempotency key, and wake the publisher after the commit.

    Raises IdempotencyKeyReused, IdempotencyKeyInFlight.
    """
    if use is None:
        # One INSERT is a transaction of its own; BEGIN and COMMIT around it would be two more round trips.
        return _insert(tenant_id, submission)
    for _ in range(2):  # the second look sees what another request committed between the first look and its lock
        receipt = _submit_once(tenant_id, submission, use)
        if receipt is not None:
            return receipt
    raise IdempotencyKeyInFlight


def _submit_once(tenant_id: uuid.UUID, submission: Submission, use: KeyUse) -> Receipt | None:
    with transaction.atomic():
        earlier = idempotency.look_up(use)
        if earlier is not None:
            return Receipt(earlier.job_id, earlier.created_at, replayed=True)
        receipt = _insert(tenant_id, submission)
        if idempotency.remember(use, receipt.job_id):
            return receipt
        transaction.set_rollback(True)
        return None


def _insert(tenant_id: uuid.UUID, submission: Submission) -> Receipt:
    job = Job(
        tenant_id=tenant_id,
        url=submission.target.url,
        host=submission.target.host,
        method=submission.method,
        headers=submission.headers,
        body=submission.body,
        priority=submission.priority,
        callback_url=submission.callback_url,
        tags=submission.tags,
        run_at=submission.run_at,
        deadline_seconds=submission.deadline_seconds,
        max_attempts=submission.max_attempts,
        max_bytes=submission.max_bytes,
        retry_unsafe=submission.retry_unsafe,
        executor=submission.executor,
        follow_redirects=submission.follow_redirects,
    )
    if submission.run_at is not None:
        job.eligible_at = Greatest(Now(), Value(submission.run_at))  # type: ignore[assignment]
    job.save(force_insert=True)
    transaction.on_commit(wakeup.notify)
    return Receipt(job.id, job.created_at)

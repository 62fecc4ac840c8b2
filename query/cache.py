"""Cache-aside for one job's answer, key `job:{id}`: two seconds while the job can change, until its result expires
once it has succeeded. The write side knows nothing of it; the finish event drops the key."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Final

from django.core.cache import cache

from jobs.models import Job
from jobs.states import State

CHANGING_SECONDS: Final = 2.0
"""Also bounds how long a reader that raced with the finish can leave a stale answer behind."""

Document = dict[str, Any]


def recall(tenant_id: uuid.UUID, job_id: uuid.UUID) -> Document | None:
    """What the cache knows of the tenant's job; None on a miss, and when Redis does not answer."""
    known: tuple[str, Document] | None = cache.get(_key(job_id))
    return known[1] if known is not None and known[0] == str(tenant_id) else None


def remember(job: Job, document: Document, *, now: datetime) -> None:
    """Keep the answer for as long as it stays right. Only a success stays so: what failed may be tried again."""
    seconds = CHANGING_SECONDS
    if job.state == State.SUCCEEDED and job.result_expires_at is not None:
        seconds = max((job.result_expires_at - now).total_seconds(), CHANGING_SECONDS)
    cache.set(_key(job.id), (str(job.tenant_id), document), seconds)


def forget(job_id: uuid.UUID) -> None:
    """Drop what the cache knows of the job."""
    cache.delete(_key(job_id))


def _key(job_id: uuid.UUID) -> str:
    return f"job:{job_id}"

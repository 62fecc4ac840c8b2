"""The read side's ear for finish events."""

from __future__ import annotations

import uuid

from celery import shared_task

from query import reading


@shared_task(name="query.forget_job")
def forget_job(job_id: str) -> None:
    """The job ended: what the cache says of it is stale."""
    reading.forget(uuid.UUID(job_id))

"""Cache-aside for one job's answer, key `job:{id}`: two seconds while the job can still change, until its result
expires once it cannot. The write side knows nothing of it; the finish event drops the key."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.cache import cache

UNTIL_FINAL_SECONDS = 2
FINAL_SECONDS = 24 * 3600


def key(job_id: uuid.UUID) -> str:
    """The cache's name for a job."""
    return f"job:{job_id}"


def recall(job_id: uuid.UUID) -> dict[str, Any] | None:
    """What the cache knows of the job; None on a miss, and when Redis does not answer."""
    known: dict[str, Any] | None = cache.get(key(job_id))
    return known


def remember(job_id: uuid.UUID, answer: dict[str, Any], *, final: bool) -> None:
    """Keep the answer; the short life bounds how long a reader that raced with the finish can leave a stale one."""
    cache.set(key(job_id), answer, FINAL_SECONDS if final else UNTIL_FINAL_SECONDS)


def forget(job_id: uuid.UUID) -> None:
    """Drop what the cache knows of the job."""
    cache.delete(key(job_id))

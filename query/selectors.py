"""Reads of one tenant's jobs. Every one is bound to the tenant: another's job is as if it were not there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from django.db.models import QuerySet
from django.db.models.functions import Now

from core.errors import NotFound
from jobs.models import Attempt, Job, JobEvent

_NOT_SHOWN: Final = ("headers", "body", "callback_url")  # up to 1 MiB a row that no list needs


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job and the database's clock at the time it was read."""

    job: Job
    now: datetime


def _jobs_of(tenant_id: uuid.UUID) -> QuerySet[Job]:
    return Job.objects.filter(tenant_id=tenant_id).annotate(read_at=Now()).defer(*_NOT_SHOWN)


def _seen(job: Job) -> SeenJob:
    return SeenJob(job, cast(Any, job).read_at)


def find_job(tenant_id: uuid.UUID, job_id: uuid.UUID) -> SeenJob:
    """The tenant's job. Raises NotFound."""
    job = _jobs_of(tenant_id).filter(pk=job_id).first()
    if job is None:
        raise NotFound
    return _seen(job)


_LOOKUPS: Final = {
    "status": "state",
    "priority": "priority",
    "host": "host__in",
    "created_after": "created_at__gt",
    "created_before": "created_at__lt",
}


def list_jobs(
    tenant_id: uuid.UUID, filters: Mapping[str, Any], *, after: uuid.UUID | None, limit: int
) -> list[SeenJob]:
    """Up to `limit` jobs, newest first, beginning behind the row `after`.

    Ids are made before their rows are committed, so a row may yet appear among pages already read, never among those to
    come: going on behind the last id neither skips nor repeats.
    """
    jobs = _jobs_of(tenant_id).filter(**{_LOOKUPS[name]: filters[name] for name in _LOOKUPS if name in filters})
    if "tag" in filters:
        jobs = jobs.filter(tags__contains=[filters["tag"]])
    if after is not None:
        jobs = jobs.filter(id__lt=after)
    return [_seen(job) for job in jobs.order_by("-id")[:limit]]


def attempts_of(job: Job) -> QuerySet[Attempt]:
    return Attempt.objects.filter(job_id=job.pk).order_by("claim_no")


def events_of(job: Job) -> QuerySet[JobEvent]:
    return JobEvent.objects.filter(job_id=job.pk).order_by("seq")

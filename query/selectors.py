"""Reads of one tenant's jobs. Every one is bound to the tenant: another's job is as if it were not there."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from core.errors import NotFound
from core.ids import first_id
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


def find_jobs(tenant_id: uuid.UUID, job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, SeenJob]:
    """Those of the jobs that are there and the tenant's, by id; no query where none is asked for."""
    return {job.pk: _seen(job) for job in _jobs_of(tenant_id).filter(pk__in=job_ids)} if job_ids else {}


MOST_LOOKED_AT: Final = 20_000
"""Rows that one page reads at most; the filters that no index serves may pass over all of them."""
CLOCKS_APART: Final = timedelta(minutes=10)
"""How far an id's own time, by the clock of a web process, may be from `created_at`, by the database's."""

_LOOKUPS: Final = {
    "priority": "priority",
    "host": "host__in",
    "created_after": "created_at__gt",
    "created_before": "created_at__lt",
}
# The order of an index is the only way to a page: a sort of few rows by old statistics may be one of many.
_IN_ORDER: Final = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true)
"""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs, newest first, and the row behind which to go on; None at the end. A page may be short, or empty, and
    yet have others behind it: where the filters let few of MOST_LOOKED_AT rows pass."""

    jobs: list[SeenJob]
    next_after: uuid.UUID | None


def list_jobs(tenant_id: uuid.UUID, filters: Mapping[str, Any], *, after: uuid.UUID | None, limit: int) -> JobPage:
    """Up to `limit` jobs, newest first, beginning behind the row `after`.

    Ids are made before their rows are committed, so a row may yet appear among pages already read, never among those to
    come: going on behind the last id neither skips nor repeats.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_IN_ORDER)
        rows = _span(_jobs_of(tenant_id), filters, after).order_by("-id")
        narrow = {_LOOKUPS[name]: filters[name] for name in _LOOKUPS if name in filters}
        if "tag" in filters:
            narrow["tags__contains"] = [filters["tag"]]
        last = _last_looked_at(rows) if narrow else None
        if last is not None:
            narrow["id__gte"] = last
        seen = [_seen(job) for job in rows.filter(**narrow)[: limit + 1]]  # one more tells whether more follow
    if len(seen) > limit:
        return JobPage(seen[:limit], seen[limit - 1].job.pk)
    return JobPage(seen, last)


def _span(jobs: QuerySet[Job], filters: Mapping[str, Any], after: uuid.UUID | None) -> QuerySet[Job]:
    """What an index leads to: the rows of a state, behind a row, made about a time."""
    if "status" in filters:
        jobs = jobs.filter(state=filters["status"])
    if "created_after" in filters:
        jobs = jobs.filter(id__gte=first_id(filters["created_after"], -CLOCKS_APART))
    if "created_before" in filters:
        jobs = jobs.filter(id__lt=first_id(filters["created_before"], CLOCKS_APART))
    return jobs if after is None else jobs.filter(id__lt=after)


def _last_looked_at(rows: QuerySet[Job]) -> uuid.UUID | None:
    """The row at which a page ends that finds no more; None where there are fewer rows."""
    return next(iter(rows.values_list("id", flat=True)[MOST_LOOKED_AT - 1 : MOST_LOOKED_AT]), None)


def attempts_of(job: Job) -> QuerySet[Attempt]:
    return Attempt.objects.filter(job_id=job.pk).order_by("claim_no")


def events_of(job: Job) -> QuerySet[JobEvent]:
    return JobEvent.objects.filter(job_id=job.pk).order_by("seq")

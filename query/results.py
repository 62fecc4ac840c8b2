"""Where a job's stored response can be had, or why it cannot.

ServiceError
|- Conflict
|  |- ResultNotReady         result_not_ready            409, Retry-After
|  |- JobFailed              job_failed                  409
|  `- JobCancelled           job_cancelled               409
`- Gone
   `- ResultExpired          result_expired              410
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import ClassVar, Final

from django.conf import settings
from django.utils import timezone

from core.errors import Conflict, Gone, Unavailable
from jobs.models import Job
from jobs.states import State
from query.selectors import SeenJob
from results.storage import StorageUnavailable, signed_link

MAX_RETRY_AFTER_SECONDS: Final = 3600
UNAVAILABLE_SECONDS: Final = 30

logger = logging.getLogger(__name__)


class ResultNotReady(Conflict):
    """The job has not ended yet."""

    status: ClassVar[HTTPStatus] = HTTPStatus.CONFLICT
    code: ClassVar[str] = "result_not_ready"
    default_detail: ClassVar[str] = "The job has not ended yet; ask again later."


class JobFailed(Conflict):
    """There will be no result: the job failed."""

    status: ClassVar[HTTPStatus] = HTTPStatus.CONFLICT
    code: ClassVar[str] = "job_failed"
    default_detail: ClassVar[str] = "The job failed, so it has no result."


class JobCancelled(Conflict):
    """There will be no result: the job was cancelled."""

    status: ClassVar[HTTPStatus] = HTTPStatus.CONFLICT
    code: ClassVar[str] = "job_cancelled"
    default_detail: ClassVar[str] = "The job was cancelled, so it has no result."


class ResultExpired(Gone):
    """The result was kept as long as promised."""

    code: ClassVar[str] = "result_expired"
    default_detail: ClassVar[str] = "The result was kept until its retention ended."


@dataclass(frozen=True, slots=True)
class ResultLink:
    """A download address and when it stops working."""

    url: str
    expires_at: datetime


def result_link(seen: SeenJob) -> ResultLink:
    """A fresh link. Signing needs no storage: it works while the storage is down. Raises the errors above."""
    _check_ready(seen)
    # The signature's life is counted from this machine's clock, not from the database's.
    expires_at = timezone.now() + timedelta(seconds=settings.RESULT_LINK_SECONDS)
    try:
        url = signed_link(seen.job.result_key, filename=str(seen.job.id))
    except StorageUnavailable as error:
        logger.error("no link to a result can be signed: %s", error)
        raise Unavailable("Results cannot be had at the moment.", retry_after=UNAVAILABLE_SECONDS) from error
    return ResultLink(url, expires_at)


def _check_ready(seen: SeenJob) -> None:
    job = seen.job
    if job.state == State.FAILED:
        raise JobFailed(f"The job failed with {job.error_code}, so it has no result.")
    if job.state == State.CANCELLED:
        raise JobCancelled
    if job.state != State.SUCCEEDED:
        raise ResultNotReady(retry_after=_seconds_to_wait(job, seen.now))
    if job.result_expires_at is not None and job.result_expires_at <= seen.now:
        raise ResultExpired


def _seconds_to_wait(job: Job, now: datetime) -> int:
    """Until the job may start, at least a second; a job due next month is asked for once an hour."""
    wait = math.ceil((job.eligible_at - now).total_seconds()) if job.state == State.QUEUED else 1
    return min(max(wait, 1), MAX_RETRY_AFTER_SECONDS)

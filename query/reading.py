"""Reading one job: from the cache, or else by one reader from the database while the others wait for what it finds."""

from __future__ import annotations

import logging
import time
import uuid
from datetime import datetime
from typing import Final

from django.db import Error, connection

from jobs import surroundings
from jobs.representation import job_document
from query import selectors
from query.answers import JobAnswer
from query.cache import AnswerCache, Keep, Look, Turn, seconds_to_keep, shared
from query.selectors import SeenJob
from query.versions import Version

logger = logging.getLogger(__name__)

WAITS: Final = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.128)
"""Seconds between looks for what another reader is about to find; after that it is read once more."""


def read_job(tenant_id: uuid.UUID, job_id: uuid.UUID, *, answers: AnswerCache | None = None) -> JobAnswer:
    """The answer to the tenant's question for a job, up to two seconds old. Raises NotFound."""
    answers, reader = answers or shared(), uuid.uuid4().hex
    look = _look(answers, tenant_id, job_id, reader)
    if isinstance(look.found, JobAnswer) and look.found.tenant_id == tenant_id:
        return look.found
    # Another tenant's job is looked for like one that does not exist, and takes as long.
    kept = False
    try:
        seen = selectors.find_job(tenant_id, job_id)
        answer = _answer(seen)
        if look.at is not None:
            keep = Keep(seconds_to_keep(seen.job, now=seen.now), look.at)
            kept = answers.remember(answer, job_id, Version.of(seen.job, seen.now), keep, reader)
    finally:
        if look.found == Turn.MINE and not kept:
            answers.release(tenant_id, job_id, reader)
    return answer


def _look(answers: AnswerCache, tenant_id: uuid.UUID, job_id: uuid.UUID, reader: str) -> Look:
    look = answers.look(tenant_id, job_id, reader)
    for seconds in WAITS:
        if look.found != Turn.ANOTHERS:
            break
        time.sleep(seconds)
        look = answers.look(tenant_id, job_id, reader)
    return look


def _answer(seen: SeenJob) -> JobAnswer:
    facts = surroundings.look([seen.job]).of(seen.job)
    return JobAnswer.of(seen.job.tenant_id, job_document(seen.job, facts, now=seen.now))


def forget(job_id: uuid.UUID) -> None:
    """A change of the job is committed: whoever asks from now on is told of it, or two seconds later where the database
    or the cache does not answer."""
    try:
        changed_by = database_time()
    except Error as error:
        logger.warning("an answer is left to run out: %s", error)
    else:
        shared().forget(job_id, changed_by)


def database_time() -> datetime:
    """Now, by the clock that every read is dated with."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment

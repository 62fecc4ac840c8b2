"""Which jobs go to the bus next. Today: those due, oldest first; the fair order among tenants, priorities and hosts is
decided here and nowhere else."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

_CANDIDATES = """
SELECT id, claim_no, priority, host FROM jobs_job
WHERE state = 'queued' AND published_at IS NULL AND eligible_at <= now()
ORDER BY eligible_at, id LIMIT %s
"""

_ROOM = """
SELECT coalesce((SELECT sum(slots) FROM jobs_workerprocess WHERE seen_at > now() - %s * interval '1 second'), 0),
       (SELECT count(*) FROM jobs_job WHERE state = 'queued' AND published_at IS NOT NULL)
"""

_OLD_IN_WINDOW = """
SELECT EXISTS (SELECT FROM jobs_job WHERE state = 'queued' AND published_at < now() - %s * interval '1 second')
"""

_NEXT_DUE = """
SELECT extract(epoch FROM min(eligible_at) - now()) FROM jobs_job
WHERE state = 'queued' AND published_at IS NULL AND eligible_at > now()
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that may be published now."""

    job_id: uuid.UUID
    claim_no: int
    priority: int
    host: str


def room_in_window() -> int:
    """How many more jobs the broker may hold; the rest waits in the database, where order is decided late."""
    with connection.cursor() as cursor:
        cursor.execute(_ROOM, [settings.LEASE_SECONDS])
        slots, in_window = cursor.fetchone()
    window = settings.PUBLISH_WINDOW or 2 * max(int(slots), settings.WORKER_SLOTS)
    return max(0, window - int(in_window))


def candidates(limit: int) -> list[Candidate]:
    """Up to `limit` jobs in the order in which they should run."""
    with connection.cursor() as cursor:
        cursor.execute(_CANDIDATES, [limit])
        return [Candidate(*row) for row in cursor.fetchall()]


def waits_in_window(seconds: float) -> bool:
    """Whether a job was published longer than `seconds` ago and is still unclaimed."""
    with connection.cursor() as cursor:
        cursor.execute(_OLD_IN_WINDOW, [seconds])
        (found,) = cursor.fetchone()
    return bool(found)


def seconds_until_next_due() -> float | None:
    """Seconds until the next waiting job (a retry, a run_at) becomes due; None when none waits."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT_DUE)
        (seconds,) = cursor.fetchone()
    return None if seconds is None else float(seconds)

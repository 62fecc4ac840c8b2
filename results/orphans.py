"""Objects that no result names: a worker that died between its upload and its word about it leaves one.

Every attempt that may have left an object says so in its row (`object_left`). Once its worker can no longer be at it,
the object is deleted, and the row says so no more.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from results import storage

_LEFT = """
SELECT a.id, j.tenant_id, a.job_id, a.claim_no FROM jobs_attempt a JOIN jobs_job j ON j.id = a.job_id
WHERE a.object_left AND a.finished_at < now() - %s * interval '1 second'
ORDER BY a.finished_at, a.id LIMIT %s
"""

_DELETED = "UPDATE jobs_attempt SET object_left = false WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class _Orphan:
    attempt_id: int
    tenant_id: uuid.UUID
    job_id: uuid.UUID
    claim_no: int


def patience_seconds() -> float:
    """How long a worker that lost its lease may still be uploading: it stops itself within a lease's time."""
    return float(settings.LEASE_SECONDS)


def delete_orphans(limit: int) -> int:
    """Delete what up to `limit` attempts left behind; returns how many were looked after.

    Raises StorageUnavailable; what was deleted by then is noted, the rest waits for the next pass.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, [patience_seconds(), limit])
        orphans = [_Orphan(*row) for row in cursor.fetchall()]
    deleted: list[int] = []
    try:
        for orphan in orphans:
            storage.delete(storage.result_key(orphan.tenant_id, orphan.job_id, orphan.claim_no))
            deleted.append(orphan.attempt_id)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(_DELETED, [deleted])
    return len(deleted)

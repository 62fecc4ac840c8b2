"""Objects that no result names: a worker that died between its upload and its word about it leaves one.

Every attempt that may have left an object says so in its row (`object_left`). Once its worker can no longer be at it,
the object is deleted, and a while later once more: an upload that a storage had taken in before it froze may come to
its end right after the first deletion. Then the row says so no more.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from django.conf import settings
from django.db import connection

from results import storage

_LEFT = """
SELECT a.id, j.tenant_id, a.job_id, a.claim_no FROM jobs_attempt a JOIN jobs_job j ON j.id = a.job_id
WHERE a.object_left AND a.finished_at < now() - %s * interval '1 second' AND a.id <> ALL(%s)
ORDER BY a.finished_at, a.id LIMIT %s
"""

_GONE = "UPDATE jobs_attempt SET object_left = false WHERE id = ANY(%s)"


def patience_seconds() -> float:
    """How long a worker that lost its lease may still be uploading: it stops itself within a lease's time. As long
    again lies between the two deletions."""
    return float(settings.LEASE_SECONDS)


@dataclass(frozen=True, slots=True)
class _Orphan:
    attempt_id: int
    tenant_id: uuid.UUID
    job_id: uuid.UUID
    claim_no: int


@dataclass(slots=True)
class OrphanSweep:
    """Remembers, for as long as its process lives, when it deleted what first; forgetting costs one deletion more."""

    deleted_at: dict[int, float] = field(default_factory=dict)

    def delete_page(self, limit: int) -> int:
        """Delete what up to `limit` attempts left behind; returns how many it looked after.

        Raises StorageUnavailable; what was deleted by then is noted, the rest waits for the next pass.
        """
        now = time.monotonic()
        too_early = [attempt for attempt, at in self.deleted_at.items() if now - at < patience_seconds()]
        with connection.cursor() as cursor:
            cursor.execute(_LEFT, [patience_seconds(), too_early, limit])
            orphans = [_Orphan(*row) for row in cursor.fetchall()]
        gone: list[int] = []
        try:
            for orphan in orphans:
                storage.delete(storage.result_key(orphan.tenant_id, orphan.job_id, orphan.claim_no))
                if self.deleted_at.pop(orphan.attempt_id, None) is not None:
                    gone.append(orphan.attempt_id)
                else:
                    self.deleted_at[orphan.attempt_id] = time.monotonic()
        finally:
            with connection.cursor() as cursor:
                cursor.execute(_GONE, [gone])
        return len(orphans)

"""What time alone must mend: leases that ran out and messages that the broker lost. Each step is short statements that
repeat their condition and skip rows that somebody holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection

from jobs import idempotency, notices, patience, transitions

PAGE = 500

_REPUBLISH = """
UPDATE jobs_job SET published_at = NULL WHERE id IN (
    SELECT id FROM jobs_job
    WHERE state = 'queued' AND published_at < now() - %s * interval '1 second'
    ORDER BY published_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
"""

_FORGET_PROCESSES = "DELETE FROM jobs_workerprocess WHERE seen_at < now() - %s * interval '1 second'"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one pass did, in rows."""

    leases_expired: int
    messages_lost: int
    keys_purged: int


def sweep() -> Sweep:
    """One pass over everything that is due."""
    swept = Sweep(
        leases_expired=_in_pages(lambda: len(transitions.expire_leases(PAGE))),
        messages_lost=_in_pages(lambda: republish_lost_messages(PAGE)),
        keys_purged=_in_pages(lambda: idempotency.purge_expired(PAGE)),
    )
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_PROCESSES, [patience.forget_process_after()])
    if swept.leases_expired or swept.messages_lost:
        notices.work_waits()
    return swept


def republish_lost_messages(limit: int) -> int:
    """Clear the publish mark of up to `limit` jobs whose message must be lost. Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_REPUBLISH, [patience.lost_message_grace(), limit])
        return int(cursor.rowcount)


def _in_pages(step: Callable[[], int]) -> int:
    total = 0
    while (done := step()) > 0:
        total += done
        if done < PAGE:
            break
    return total

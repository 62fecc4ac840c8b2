"""What time alone must mend: leases that ran out and messages that the broker lost. Each step is short statements that
repeat their condition and skip rows that somebody holds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import DataError, IntegrityError, connection

from jobs import hosts, idempotency, notices, patience, transitions

PAGE = 500

logger = logging.getLogger(__name__)

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
    hosts_forgotten: int = 0


def sweep() -> Sweep:
    """One pass over everything that is due."""
    swept = Sweep(
        leases_expired=expire_leases(),
        messages_lost=_in_pages(lambda: republish_lost_messages(PAGE)),
        keys_purged=_in_pages(lambda: idempotency.purge_expired(PAGE)),
        hosts_forgotten=_in_pages(lambda: hosts.forget_idle_states(PAGE))
        + _in_pages(lambda: hosts.forget_crawl_delays(PAGE)),
    )
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_PROCESSES, [patience.forget_process_after()])
    if swept.leases_expired or swept.messages_lost:
        notices.work_waits()
    return swept


def expire_leases() -> int:
    """Take back every job whose lease ran out; returns how many. A row that the database refuses to move hides no
    other: its page is gone through row by row, and it alone is left, with a line in the log."""
    try:
        return _in_pages(lambda: len(transitions.expire_leases(PAGE)))
    except (IntegrityError, DataError):
        return _expire_one_by_one()


def _expire_one_by_one() -> int:
    expired, cursor = 0, transitions.FIRST_LEASE
    while (lease := transitions.next_expired_lease(cursor)) is not None:
        try:
            expired += len(transitions.expire_leases(1, after=cursor))
        except (IntegrityError, DataError):
            logger.exception("job %s cannot be taken back from its lost worker", lease[1])
        cursor = lease
    return expired


def republish_lost_messages(limit: int, *, grace: float | None = None) -> int:
    """Clear the publish mark of up to `limit` jobs whose message must be lost: nobody has claimed them for `grace`
    seconds, by default lost_message_grace. Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_REPUBLISH, [patience.lost_message_grace() if grace is None else grace, limit])
        return int(cursor.rowcount)


def _in_pages(step: Callable[[], int]) -> int:
    total = 0
    while (done := step()) > 0:
        total += done
        if done < PAGE:
            break
    return total

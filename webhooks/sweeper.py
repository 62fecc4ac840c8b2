"""What time alone must mend: ends that no message told of, and deliveries past their time. Short steps, in pages."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection
from django.utils import timezone

from webhooks import announcing

PAGE: Final = 500
MAX_PAGES: Final = 100
"""Of one sweep; the rest is the next one's."""
GRACE_SECONDS: Final = 30.0
"""Since the end. A message that comes later than this finds the delivery made, and makes no second one."""
PENDING_KEPT: Final = timedelta(days=7)
"""The schedule ends within four days; what is pending for longer stands behind a receiver that is broken for good."""

# The first sweep of all begins with what ends from then on.
_FIRST_MARK: Final = """
INSERT INTO webhooks_announcemark (id, seq) SELECT 1, coalesce(max(seq), 0) FROM jobs_finishevent
ON CONFLICT (id) DO NOTHING
"""
_MOVE_MARK: Final = "UPDATE webhooks_announcemark SET seq = greatest(seq, %s)"

# Numbers are committed in their order, so behind the mark nothing appears any more. Their order is only nearly that of
# the ends: the page stops at the first that is too young, or the mark would pass it.
_TOLD: Final = """
SELECT t.seq, t.job_id, coalesce(
    j.finished_at = t.at
    AND (j.callback_url <> '' OR EXISTS (
        SELECT FROM webhooks_endpoint e WHERE e.tenant_id = t.tenant_id
        AND e.deleted_at IS NULL AND e.disabled_at IS NULL AND e.created_at <= t.at))
    AND NOT EXISTS (SELECT FROM webhooks_delivery d WHERE d.job_id = t.job_id AND d.ended_at = t.at), false)
FROM (
    SELECT page.*, bool_and(at < now() - %s * interval '1 second') OVER (ORDER BY seq) AS is_old FROM (
        SELECT * FROM jobs_finishevent WHERE seq > (SELECT seq FROM webhooks_announcemark) ORDER BY seq LIMIT %s
    ) page
) t LEFT JOIN jobs_job j ON j.id = t.job_id
WHERE t.is_old ORDER BY t.seq
"""

# By the time in the ids. The key between the two tables is checked at the commit, so their order is free.
_FORGET: Final = """
WITH old AS (
    SELECT id FROM webhooks_delivery WHERE id < %s AND (status <> 'pending' OR id < %s)
    ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
), tries AS (
    DELETE FROM webhooks_deliverytry USING old WHERE delivery_id = old.id
)
DELETE FROM webhooks_delivery d USING old WHERE d.id = old.id
"""

_FORGET_ENDPOINTS: Final = """
DELETE FROM webhooks_endpoint e WHERE e.deleted_at < now() - interval '1 hour'
AND NOT EXISTS (SELECT FROM webhooks_delivery d WHERE d.endpoint_id = e.id)
"""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one pass did, in rows."""

    announced: int
    deliveries_forgotten: int
    endpoints_forgotten: int


def sweep() -> Sweep:
    """One pass over everything that is due."""
    return Sweep(
        announced=_pages(announce_untold),
        deliveries_forgotten=_pages(forget_old),
        endpoints_forgotten=_execute(_FORGET_ENDPOINTS, []),
    )


def announce_untold() -> tuple[int, bool]:
    """One page of the ends that were told of: make the deliveries of those whose message the broker lost.

    Returns how many ends that were, and whether there may be more.
    """
    with connection.cursor() as cursor:
        cursor.execute(_FIRST_MARK)
        cursor.execute(_TOLD, [GRACE_SECONDS, PAGE])
        told = cursor.fetchall()
    untold = [job_id for _, job_id, is_untold in told if is_untold]
    if untold:
        announcing.announce(untold)
    if told:
        _execute(_MOVE_MARK, [told[-1][0]])
    return len(untold), len(told) == PAGE


def forget_old() -> tuple[int, bool]:
    """One page of deliveries whose retention is over; returns how many, and whether there may be more."""
    now = timezone.now()
    kept = timedelta(days=settings.RETENTION_DAYS)
    gone = _execute(_FORGET, [first_id_at(now - kept), first_id_at(now - max(kept, PENDING_KEPT)), PAGE])
    return gone, gone == PAGE


def first_id_at(moment: datetime) -> uuid.UUID:
    """The lowest UUIDv7 of that millisecond (RFC 9562 5.7)."""
    return uuid.UUID(int=max(int(moment.timestamp() * 1000), 0) << 80)


def _execute(statement: str, terms: list[Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, terms)
        return int(cursor.rowcount)


def _pages(step: Callable[[], tuple[int, bool]]) -> int:
    total = 0
    for _ in range(MAX_PAGES):
        done, more = step()
        total += done
        if not more:
            break
    return total

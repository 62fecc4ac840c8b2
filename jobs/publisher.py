"""The outbox: rows whose mark is empty are sent to the bus, then marked. A crash in between sends them again, and the
claim sorts that out; a message that was never sent is impossible to mark."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import connection, transaction

from jobs import backlog, sweeper
from jobs.dispatcher import Dispatcher
from jobs.messages import Message
from jobs.routing import EVENTS_QUEUE, EXECUTE, FINISH_SUBSCRIBERS, QUEUE_OF_PRIORITY

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOSS_SECONDS = 5.0
CHUNK = 100  # marked together: what a crash can send twice

Send = Callable[[Sequence[Message]], None]  # returns once the broker has them all

# A late mark must not hide a retry that was queued meanwhile, hence claim_no. A row that somebody holds is skipped: it
# is being claimed or cancelled, and to wait for it could deadlock. The commit does not wait for the disk: a mark that a
# crash of the database takes back only sends its message once more.
_MARK = """
WITH hasty AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
), sent AS MATERIALIZED (
    SELECT j.id FROM hasty, json_to_recordset(%s) AS s (id uuid, claim_no int) JOIN jobs_job j USING (id, claim_no)
    WHERE j.state = 'queued' AND j.published_at IS NULL FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobs_job j SET published_at = now() FROM sent WHERE sent.id = j.id
"""

_FINISHED = """
SELECT id FROM jobs_job
WHERE state IN ('succeeded', 'failed', 'cancelled') AND finish_published_at IS NULL
ORDER BY finished_at, id LIMIT %s
"""

# Until the commit, so that numbers are committed in their order whoever gives them.
_NUMBERS_ALONE = "SELECT pg_advisory_xact_lock(7236127719451002)"

# A job that was retried meanwhile is not marked: its next end would not be told of.
_MARK_FINISHED = """
WITH told AS (
    UPDATE jobs_job SET finish_published_at = now()
    WHERE id = ANY(%s) AND finish_published_at IS NULL AND state IN ('succeeded', 'failed', 'cancelled')
    RETURNING id, tenant_id, state, priority, finished_at,
        ((CASE state WHEN 'succeeded' THEN coalesce(result_expires_at, finished_at) ELSE finished_at END)
            AT TIME ZONE 'UTC')::date AS until,
        CASE state WHEN 'succeeded' THEN result_bytes ELSE 0 END AS bytes
), numbered AS (
    INSERT INTO jobs_finishevent (tenant_id, job_id, at) SELECT tenant_id, id, finished_at FROM told
    ORDER BY finished_at, id
)
INSERT INTO jobs_tally AS kept (tenant_id, state, priority, until, taken_off, jobs, bytes)
SELECT tenant_id, state, priority, until, false, count(*), sum(bytes) FROM told GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
ON CONFLICT (tenant_id, state, priority, until, taken_off)
DO UPDATE SET jobs = kept.jobs + excluded.jobs, bytes = kept.bytes + excluded.bytes
"""


def publish_batch(limit: int, send: Send, dispatcher: Dispatcher | None = None) -> int:
    """One pass over the backlog: send up to `limit` due jobs that fit the window, in the dispatcher's order.

    Returns how many were sent. Raises what `send` raises; what was not marked by then is sent again.
    """
    dispatcher = dispatcher or Dispatcher()
    jobs = dispatcher.choose(limit)
    try:
        for chunk in _chunks(jobs):
            send(
                [
                    Message(EXECUTE, (job.job_id, job.claim_no, job.host), QUEUE_OF_PRIORITY[job.priority])
                    for job in chunk
                ]
            )
            with connection.cursor() as cursor:
                cursor.execute(_MARK, [json.dumps([{"id": job.job_id, "claim_no": job.claim_no} for job in chunk])])
    except BaseException:
        dispatcher.forget()
        raise
    return len(jobs)


def publish_finish_events(limit: int, send: Send) -> int:
    """One pass over ended jobs: tell every subscriber of up to `limit` of them, number them for `GET /events` and add
    them to the tallies. Returns how many jobs were told of."""
    with connection.cursor() as cursor:
        cursor.execute(_FINISHED, [limit])
        finished: list[uuid.UUID] = [row[0] for row in cursor.fetchall()]
    for chunk in _chunks(finished):
        send([Message(name, (str(job_id),), EVENTS_QUEUE) for job_id in chunk for name in FINISH_SUBSCRIBERS])
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_NUMBERS_ALONE)
            cursor.execute(_MARK_FINISHED, [chunk])
    return len(finished)


class LossWatch:
    """Notices within seconds that a broker has lost what it held, as after a purge or a restart without a disk. The
    sweeper's grace is minutes, and until then the window counts as full and nothing else is sent.

    Messages in a worker's hands are not in the queue either: at worst they are sent a second time, and then the queue
    is not empty.
    """

    def __init__(self) -> None:
        self._next = 0.0

    def look(self, held: Callable[[], int]) -> int:
        """Publish again what is gone, at most each LOSS_SECONDS; `held` asks how many messages the broker holds.

        Returns how many jobs are to be sent again. Raises what `held` raises.
        """
        if time.monotonic() < self._next:
            return 0
        self._next = time.monotonic() + LOSS_SECONDS
        if not backlog.waits_in_window(LOSS_SECONDS) or held() > 0:
            return 0
        lost = sweeper.republish_lost_messages(CHUNK, grace=LOSS_SECONDS)
        if lost:
            logger.warning("the broker holds no message: %s jobs are sent again", lost)
        return lost


def _chunks(items: list[T]) -> list[list[T]]:
    return [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]

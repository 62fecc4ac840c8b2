"""One tenant's figures, at a cost that does not grow with its jobs.

What has ended is added up in `Tally`, of which a tenant has a few rows a day. What waits or runs is counted, up to
COUNT_LIMIT in each state; so are the ends that the publisher has not told of yet.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection, transaction

from jobs.states import FINAL, Priority, State

COUNT_LIMIT: Final = 10_000

# By old statistics the planner may take the table for full of such rows, and read it whole to find that none is there.
_BY_INDEX: Final = "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"

# One statement is one moment: a job that ends in between is counted once.
_FIGURES: Final = """
WITH counted AS (
    SELECT state, priority, 0 AS bytes FROM (
        SELECT state, priority FROM jobs_job WHERE tenant_id = %(tenant)s AND state = 'queued' LIMIT %(limit)s) queued
    UNION ALL
    SELECT state, priority, 0 FROM (
        SELECT state, priority FROM jobs_job WHERE tenant_id = %(tenant)s AND state = 'running' LIMIT %(limit)s) running
    UNION ALL
    SELECT state, priority, CASE state WHEN 'succeeded' THEN result_bytes ELSE 0 END FROM (
        SELECT tenant_id, state, priority, result_bytes FROM jobs_job
        WHERE state IN ('succeeded', 'failed', 'cancelled') AND finish_published_at IS NULL
        ORDER BY finished_at, id LIMIT %(limit)s) untold
    WHERE tenant_id = %(tenant)s
)
SELECT state, priority, count(*), sum(bytes) FROM counted GROUP BY 1, 2
UNION ALL
SELECT state, priority, sum(jobs),
    coalesce(sum(bytes) FILTER (WHERE until >= (statement_timestamp() AT TIME ZONE 'UTC')::date), 0)
FROM jobs_tally WHERE tenant_id = %(tenant)s GROUP BY 1, 2
"""

_OLDEST: Final = """
SELECT extract(epoch FROM statement_timestamp() - created_at)::float FROM jobs_job
WHERE tenant_id = %s AND state = 'queued' ORDER BY id LIMIT 1
"""


@dataclass(slots=True)
class Figures:
    """Jobs by state and priority; `at_least` names the states that have COUNT_LIMIT jobs or more, whose figures are
    those of the first COUNT_LIMIT that were met. `oldest_queued_seconds` is None where none is queued."""

    jobs: dict[State, dict[Priority, int]] = field(
        default_factory=lambda: {state: dict.fromkeys(Priority, 0) for state in State}
    )
    at_least: list[State] = field(default_factory=list)
    bytes_stored: int = 0
    oldest_queued_seconds: float | None = None

    def total(self, state: State) -> int:
        """All jobs in `state`."""
        return sum(self.jobs[state].values())


def read_figures(tenant_id: uuid.UUID) -> Figures:
    """The tenant's figures now."""
    figures = Figures()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_BY_INDEX)
        cursor.execute(_FIGURES, {"tenant": tenant_id, "limit": COUNT_LIMIT})
        for state, priority, count, stored in cursor.fetchall():
            _add(figures, State(state), Priority(priority), int(count), int(stored))
        cursor.execute(_OLDEST, [tenant_id])
        oldest: Any = cursor.fetchone()
    figures.oldest_queued_seconds = None if oldest is None else max(0.0, oldest[0])
    figures.at_least = [state for state in State if state not in FINAL and figures.total(state) >= COUNT_LIMIT]
    return figures


def _add(figures: Figures, state: State, priority: Priority, count: int, stored: int) -> None:
    figures.jobs[state][priority] += count
    figures.bytes_stored += stored

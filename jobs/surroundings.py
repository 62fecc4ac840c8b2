"""What stands in the way of queued jobs beside themselves, in one query for as many as are shown."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final

from django.db import connection

from jobs import patience
from jobs.models import Job
from jobs.states import State
from jobs.waiting import NOTHING, Facts

_FACTS: Final = """
WITH report AS MATERIALIZED (  -- taken apart once, however many jobs are asked for
    SELECT document -> 'hosts' AS hosts, document -> 'tenants' AS tenants,
        (document ->> 'window_full')::boolean AS window_full, (document ->> 'waiting_tenants')::int AS waiting_tenants
    FROM jobs_dispatchreport WHERE at > now() - %(report)s * interval '1 second' ORDER BY at DESC LIMIT 1
)
SELECT wanted.host, wanted.tenant_id,
    tenant.paused, coalesce(policy.paused, false), state.blocked_until,
    coalesce(report.hosts -> wanted.host ->> 0, ''), (report.hosts -> wanted.host ->> 1)::timestamptz,
    coalesce(report.tenants ->> wanted.tenant_id::text, ''),
    coalesce(report.window_full, false), coalesce(report.waiting_tenants, 0)
FROM unnest(%(hosts)s::text[], %(tenants)s::uuid[]) AS wanted (host, tenant_id)
JOIN tenants_tenant tenant ON tenant.id = wanted.tenant_id
LEFT JOIN jobs_hostpolicy policy ON policy.host = wanted.host
LEFT JOIN jobs_hoststate state ON state.host = wanted.host
LEFT JOIN report ON true
"""


class Surroundings:
    """The facts of some jobs, as they stood when these were read."""

    def __init__(self, found: dict[tuple[str, uuid.UUID], Facts]) -> None:
        self._found = found

    def of(self, job: Job) -> Facts:
        """What is known beside the row of `job`; nothing of one that is not queued."""
        return self._found.get((job.host, job.tenant_id), NOTHING)


def look(jobs: Iterable[Job]) -> Surroundings:
    """Read the facts of those jobs that are queued: one query, none where none is."""
    wanted = {(job.host, job.tenant_id) for job in jobs if job.state == State.QUEUED}
    if not wanted:
        return Surroundings({})
    parameters: dict[str, Any] = {
        "hosts": [host for host, _ in wanted],
        "tenants": [tenant_id for _, tenant_id in wanted],
        "report": patience.REPORT_SECONDS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FACTS, parameters)
        return Surroundings({(row[0], row[1]): Facts(*row[2:]) for row in cursor.fetchall()})

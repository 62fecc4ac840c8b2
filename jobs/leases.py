"""Keeping what was claimed: one statement per process and heartbeat renews every lease it holds."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection

Claim = tuple[uuid.UUID, int]

MISSED_HEARTBEATS = 3  # in a row, and the process stops its attempts itself, before any lease can run out

_RENEW = """
WITH process AS (
    INSERT INTO jobs_workerprocess (name, slots, running, started_at, seen_at)
    VALUES (%(worker)s, %(slots)s, %(running)s, now(), now())
    ON CONFLICT (name) DO UPDATE SET slots = excluded.slots, running = excluded.running, seen_at = now()
)
UPDATE jobs_job j SET lease_expires_at = now() + %(lease)s * interval '1 second'
FROM unnest(%(ids)s::uuid[], %(claim_nos)s::int[]) AS held (id, claim_no)
WHERE j.id = held.id AND j.claim_no = held.claim_no AND j.state = 'running'
RETURNING j.id, j.claim_no, j.cancel_requested_at IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The database's answer to a heartbeat: which claims are still ours, and which of those a caller wants stopped."""

    held: frozenset[Claim]
    cancelled: frozenset[Claim]


def renew(claims: Sequence[Claim], *, worker: str, slots: int) -> Renewal:
    """Renew the leases of `claims` and note that the process lives. A claim that is not in the answer is lost."""
    parameters: dict[str, Any] = {
        "worker": worker,
        "slots": slots,
        "running": len(claims),
        "lease": settings.LEASE_SECONDS,
        "ids": [job_id for job_id, _ in claims],
        "claim_nos": [claim_no for _, claim_no in claims],
    }
    with connection.cursor() as cursor:
        cursor.execute(_RENEW, parameters)
        rows = cursor.fetchall()
    return Renewal(
        held=frozenset((job_id, claim_no) for job_id, claim_no, _ in rows),
        cancelled=frozenset((job_id, claim_no) for job_id, claim_no, wanted in rows if wanted),
    )


def forget_process(worker: str) -> None:
    """The process ends: its slots no longer count toward the pool."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM jobs_workerprocess WHERE name = %s", [worker])

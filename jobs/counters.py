"""Figures that only grow, in rows that every process adds to: for what is too rare to matter as load, and whose count
must outlive the process that met it."""

from __future__ import annotations

from typing import Final

from django.db import connection

STALE_ATTEMPTS: Final = "stale_attempts"  # endings that came after their claim was lost, and were discarded
INTERNAL_ERRORS: Final = "internal_errors"  # attempts that failed for a reason that is a fault of this service
REFUSED: Final = {  # jobs that were not accepted, by the limit of their tenant
    "submit_rate": "refused_submit_rate",
    "max_queued": "refused_max_queued",
}

_ADD = """
INSERT INTO jobs_counter (name, value) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET value = jobs_counter.value + excluded.value
"""


def add(name: str, count: int) -> None:
    """`count` more happened."""
    if count > 0:
        with connection.cursor() as cursor:
            cursor.execute(_ADD, [name, count])


def total(name: str) -> int:
    """How often it happened so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM jobs_counter WHERE name = %s", [name])
        row = cursor.fetchone()
    return int(row[0]) if row else 0

"""System checks of the queue's settings.

jobs.E001  a lease could run out while its worker still renews it
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

from jobs.leases import MISSED_HEARTBEATS


def check_lease(**_: Any) -> list[CheckMessage]:
    """A worker that gave up must have stopped before another one may take the job."""
    if settings.LEASE_SECONDS > MISSED_HEARTBEATS * settings.HEARTBEAT_SECONDS:
        return []
    return [
        Error(
            f"LEASE_SECONDS must exceed {MISSED_HEARTBEATS} x HEARTBEAT_SECONDS "
            f"(now {settings.LEASE_SECONDS:g} and {settings.HEARTBEAT_SECONDS:g}).",
            hint="Otherwise a job is taken by a second worker while the first still runs it.",
            id="jobs.E001",
        )
    ]

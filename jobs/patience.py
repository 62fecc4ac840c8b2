"""How long things may lie before somebody must act, in seconds: the sweeper acts by these, `doctor` judges by them."""

from __future__ import annotations

from typing import Final

from django.conf import settings

PROMISE_SECONDS: Final = 60.0  # a job that may run is to be running within this time
REPORT_SECONDS: Final = 10.0  # what a publisher reported earlier is worth nothing: it may be gone
PAUSE_SECONDS: Final = 3600.0  # a pause that held a job back for so long may have been forgotten


def lost_message_grace() -> float:
    """After which a published job that nobody claimed counts as lost by the broker. A message that only waited long is
    published twice by this, and its claim number lets only one of the two count."""
    return 2.0 * settings.LEASE_SECONDS


def forget_process_after() -> float:
    """After which a worker process without a heartbeat is no longer listed."""
    return 10.0 * settings.LEASE_SECONDS


def late_sweep() -> float:
    """For which what is due to be swept may lie there while all is well: until the next sweep, and a little."""
    return float(settings.SWEEP_SECONDS) + 5.0

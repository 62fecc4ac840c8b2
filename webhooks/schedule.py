"""When a delivery is tried again, and when an endpoint is given up. Pure: knows no clock and no random source."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

DELAYS: Final = (0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds before each try, counted from the end of the one before (Standard Webhooks' recommendation)."""
JITTER: Final = 0.1
"""A delay is lengthened by up to this part, so that what failed together does not come back together."""
GIVE_UP_AFTER: Final = timedelta(days=5)
"""An endpoint that has failed for so long, and fails again, is disabled."""


def next_delay(tries: int, *, draw: float, retry_after: float | None) -> float | None:
    """Seconds until the next try after `tries` (1 or more) that failed; None when they are used up.

    `draw` is uniform in [0, 1). The receiver's `retry_after` (seconds) is a floor, never a shortcut.
    """
    if tries >= len(DELAYS):
        return None
    return max(DELAYS[tries] * (1 + JITTER * draw), retry_after or 0.0)

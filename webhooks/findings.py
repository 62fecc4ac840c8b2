"""What `manage.py doctor` says of webhooks. A judgement is a value: it knows no database and no clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jobs.doctor import Finding, Level, duration
from webhooks import vitals
from webhooks.vitals import WebhookVitals

LATE_SECONDS: Final = 60.0


def look() -> Iterator[Finding]:
    """Raises django's database Error."""
    return examine(vitals.observe())


def examine(seen: WebhookVitals) -> Iterator[Finding]:
    """All that is wrong."""
    idle = seen.last_try_age is None or seen.last_try_age > LATE_SECONDS
    # A receiver that fails makes its own deliveries wait, but is tried every half minute: then somebody delivers.
    if seen.oldest_due_age > LATE_SECONDS and idle:
        yield Finding(
            Level.WARNING,
            f"{seen.due:,} webhook deliveries are due, the oldest for {duration(seen.oldest_due_age)}; none is tried.",
            "Workers of the queue `events` deliver; none is alive, or its log says why it cannot reach the database.",
            "Start the events role. Nothing is lost: what is due is sent then.",
        )
    if seen.disabled:
        yield Finding(
            Level.WARNING,
            f"{seen.disabled:,} webhook endpoints were disabled within a day.",
            "Each failed for five days, or answered 410. Its tenant sees why, and hears of no job until it is enabled.",
            "Look at `manage.py webhooks`; a tenant that does not know of it may want to.",
        )

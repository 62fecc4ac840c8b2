"""The one table of who hears what: task names and their queues. Naming tasks here lets `jobs` send work to apps that
it must not import."""

from __future__ import annotations

from typing import Final

from jobs.states import Priority

EXECUTE: Final = "scraper.execute"  # (job id, claim_no, host): fetch the job; the claim must find exactly this claim_no
SWEEP: Final = "jobs.sweep"
SWEEP_ORPHANS: Final = "results.sweep_orphans"
SWEEP_WEBHOOKS: Final = "webhooks.sweep"

QUEUE_OF_PRIORITY: Final[dict[int, str]] = {
    Priority.HIGH: "jobs.high",
    Priority.NORMAL: "jobs.normal",
    Priority.LOW: "jobs.low",
}
SWEEPER_QUEUE: Final = "sweeper"
EVENTS_QUEUE: Final = "events"

FINISH_SUBSCRIBERS: Final[tuple[str, ...]] = (
    "query.forget_job",  # (job id): the cached answer is stale
    "webhooks.announce",  # (job id): whoever asked for it is told
)

"""A pool under load while everything it stands on breaks, by a seeded plan: what was lost, and how soon it went on.

The run itself is `tests.faults.chaos`, on servers of its own; the broker is RabbitMQ where TEST_AMQP_URL names one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench.catalogue import BenchFailed
from bench.console import note
from bench.figures import Figure
from tests.faults import chaos
from tests.faults.arena import NotReady
from tests.faults.servers import ServerFailed

RECOVERY_SECONDS = 10.0


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """The counts that must be zero, and the recovery of each kind of fault."""
    try:
        verdict = chaos.run(
            60.0 * sizes["minutes"],
            seed=sizes["seed"],
            rate=sizes["rate"],
            folder=folder,
            amqp_url=os.environ.get("TEST_AMQP_URL", ""),
            say=lambda line: note(f"    {line}"),
        )
    except (ServerFailed, NotReady) as error:
        raise BenchFailed(str(error)) from error
    print(verdict.table(), flush=True)
    found = verdict.findings
    broken = {
        "lost": found.lost,
        "double-finished": found.double_finished,
        "stuck": found.stuck,
        "live twice at once": found.overlapping,
        "posts repeated": found.repeated_posts,
        "over their attempts": found.over_max,
        "without a whole trail": found.trail_broken,
    }
    return [
        Figure("faults", verdict.faults, "faults"),
        Figure("accepted", verdict.accepted, "jobs"),
        *(Figure(name, len(jobs), "jobs", bar=0.0) for name, jobs in broken.items()),
        Figure("orphans", len(found.orphans), "objects", bar=0.0),
        *(Figure(one.fault, max(one.seconds), "s at most", bar=RECOVERY_SECONDS) for one in verdict.recoveries),
    ]

"""Jobs that wait for their target: one worker process with 20 slots, from the first claim to the last finish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench import broker
from bench.backlog import UNLIMITED, Backlog
from bench.children import Children
from bench.figures import Figure
from bench.target import LOOPBACK

TARGET_SECONDS = 1.0
ROUND_BAR = 1.4  # seconds a round of jobs may take: 200 jobs on 20 slots in under 14 s
WARM_UP_JOBS = 5
START_SECONDS = 30.0


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """Wall seconds of all jobs."""
    jobs, slots = sizes["jobs"], sizes["slots"]
    url = os.environ["BROKER_URL"]
    broker.refuse_if_used(url)
    with Children(folder) as children:
        port = children.target()
        backlog = Backlog(port)
        children.role("publisher")
        children.role("worker", WORKER_SLOTS=str(slots), EGRESS_ALLOW=f"{LOOPBACK}:{port}", **UNLIMITED)
        backlog.finish(children, backlog.submit("/bytes/100", WARM_UP_JOBS), seconds=START_SECONDS)
        ids = backlog.submit(f"/slow/{TARGET_SECONDS}", jobs)
        rounds = -(-jobs // slots)
        backlog.finish(children, ids, seconds=30 + 4 * rounds)
    took = backlog.span(ids).total_seconds()
    broker.empty(url)
    backlog.clear()
    return [
        Figure(f"{jobs} jobs of {TARGET_SECONDS:.0f} s on {slots} slots", took, "s", bar=ROUND_BAR * rounds),
        Figure("the least it could take", TARGET_SECONDS * rounds, "s"),
    ]

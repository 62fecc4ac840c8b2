"""Jobs that wait for their target: one worker process with 20 slots, from the first claim to the last finish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench import broker
from bench.backlog import START_SECONDS, UNLIMITED, Backlog
from bench.children import Children
from bench.figures import Figure

TARGET_SECONDS = 1.0
ROUND_BAR = 1.4  # seconds a round of jobs may take: 200 jobs on 20 slots in under 14 s
SLOWEST_ROUND_SECONDS = 4.0  # before the benchmark is given up
WARM_UP_JOBS = 5


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """Wall seconds of all jobs."""
    jobs, slots = sizes["jobs"], sizes["slots"]
    rounds = -(-jobs // slots)
    with broker.reserved(os.environ["BROKER_URL"]), Backlog() as backlog, Children(folder) as children:
        target = children.target()
        children.role("publisher", **UNLIMITED)
        children.role("worker", WORKER_SLOTS=str(slots), EGRESS_ALLOW=target, **UNLIMITED)
        backlog.finish(children, backlog.submit(f"http://{target}/bytes/100", WARM_UP_JOBS), seconds=START_SECONDS)
        ids = backlog.submit(f"http://{target}/slow/{TARGET_SECONDS}", jobs)
        backlog.finish(children, ids, seconds=START_SECONDS + SLOWEST_ROUND_SECONDS * rounds)
        took = backlog.seconds(ids)
    return [
        Figure(f"{jobs} jobs of {TARGET_SECONDS:.0f} s on {slots} slots", took, "s", bar=ROUND_BAR * rounds),
        Figure("the least it could take", TARGET_SECONDS * rounds, "s"),
    ]

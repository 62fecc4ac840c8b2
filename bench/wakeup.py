"""How long a single job waits in an idle stack, from its commit to its claim."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path

from bench import broker
from bench.backlog import START_SECONDS, UNLIMITED, Backlog
from bench.children import Children
from bench.console import Progress
from bench.figures import Figure, percentile
from jobs.models import Job

P50_BAR, P95_BAR = 100.0, 250.0  # ms
WARM_UP_JOBS = 5
JOB_SECONDS = 10.0
PAUSE_SECONDS = (0.3, 0.6)  # of varying length, so that no poll of the publisher falls into step with the jobs


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """Percentiles of the wait, by the database's clock."""
    waits: list[float] = []
    progress = Progress("jobs", sizes["jobs"])
    with broker.reserved(os.environ["BROKER_URL"]), Backlog() as backlog, Children(folder) as children:
        target = children.target()
        page = f"http://{target}/bytes/100"
        children.role("publisher", **UNLIMITED)
        children.role("worker", EGRESS_ALLOW=target, **UNLIMITED)
        backlog.finish(children, backlog.submit(page, WARM_UP_JOBS), seconds=START_SECONDS)
        for number in range(sizes["jobs"]):
            time.sleep(random.uniform(*PAUSE_SECONDS))
            ids = backlog.submit(page, 1)
            backlog.finish(children, ids, seconds=JOB_SECONDS)
            waits.append(_wait(Job.objects.get(pk=ids[0])))
            progress.show(number + 1)
    return [
        Figure("commit to claim, p50", percentile(waits, 0.5), "ms", bar=P50_BAR),
        Figure("commit to claim, p95", percentile(waits, 0.95), "ms", bar=P95_BAR),
    ]


def _wait(job: Job) -> float:
    """Milliseconds; created_at is the start of the transaction that made the row, so this is never too little."""
    assert job.claimed_at is not None
    return (job.claimed_at - job.created_at).total_seconds() * 1000

"""Whether a host is spared: several workers and tenants with more jobs for it than it may be asked for, judged by the
host's own log; and whether another host's jobs get past them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import broker
from bench.backlog import START_SECONDS, Backlog
from bench.children import Children
from bench.figures import Figure
from jobs.models import HostPolicy, Job
from tests.scraper.limit_target import LimitTarget, excess, most_at_once

TENANTS: Final = 3
RATE, BURST, CONNECTIONS = 5.0, 5, 2
HOLD_SECONDS: Final = 0.1
FREE_JOBS: Final = 10
FREE_BAR: Final = 1.0  # seconds from commit to claim


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """What the busy host's log shows, and how long the free host's jobs waited."""
    with ExitStack() as stack:
        stack.enter_context(broker.reserved(os.environ["BROKER_URL"]))
        busy = stack.enter_context(LimitTarget(hold=HOLD_SECONDS))
        free = stack.enter_context(LimitTarget())
        HostPolicy.objects.create(host=busy.host, rate=RATE, burst=BURST, concurrency=CONNECTIONS)
        backlogs = [stack.enter_context(Backlog()) for _ in range(TENANTS)]
        children = stack.enter_context(Children(folder))
        children.role("publisher")
        for _ in range(sizes["workers"]):
            children.role("worker", EGRESS_ALLOW=f"{busy.host},{free.host}")
        backlogs[0].finish(children, backlogs[0].submit(free.url, FREE_JOBS), seconds=2 * START_SECONDS)
        for backlog in backlogs:
            backlog.submit(busy.url, -(-sizes["jobs"] // TENANTS), unlimited=False)
        waits = _free_waits(children, backlogs, free.url, sizes["seconds"])
    times = busy.times
    return [
        Figure(
            "more than burst + rate x t in the worst window", max(excess(times, rate=RATE, burst=BURST), 0), "", bar=0
        ),
        Figure("most requests at once", most_at_once(busy.log), "", bar=CONNECTIONS),
        Figure("requests a second, of 5", len(times) / (times[-1] - times[0]), "1/s", more_is_better=True),
        Figure(f"longest wait of {len(waits)} jobs for a free host", max(waits), "s", bar=FREE_BAR),
    ]


def _free_waits(children: Children, backlogs: list[Backlog], url: str, seconds: int) -> list[float]:
    """Seconds from commit to claim of jobs that come one after the other behind the busy host's."""
    ids: list[uuid.UUID] = []
    ends = time.monotonic() + seconds
    for number in range(FREE_JOBS):
        time.sleep(seconds / 2 / FREE_JOBS)
        ids += backlogs[number % len(backlogs)].submit(url, 1)
    backlogs[0].finish(children, ids, seconds=START_SECONDS)
    children.wait_until(lambda: time.monotonic() >= ends, seconds=seconds + 1, what="the time is over")
    rows = Job.objects.filter(id__in=ids).values_list("started_at", "created_at")
    return [(started - created).total_seconds() for started, created in rows if started is not None]

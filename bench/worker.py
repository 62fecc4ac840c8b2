"""What a small job costs a worker process: claim, fetch, store, finish, on each broker that is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import broker
from bench.backlog import START_SECONDS, UNLIMITED, Backlog
from bench.children import Children, cpu_seconds, memory_mib
from bench.console import note
from bench.figures import Figure

SIZE = 20_480
CPU_BAR = 2.0  # ms
PROCESS_MIB, SLOT_MIB = 200, 1
WARM_UP_JOBS = 100
# What limits a host is not what is measured; and with DEBUG Django keeps every statement and its time.
SETTINGS = {**UNLIMITED, "DEBUG": "0"}
SLOWEST_JOB_SECONDS = 0.05  # before the benchmark is given up


@dataclass(frozen=True, slots=True)
class Spent:
    """What `jobs` jobs took: CPU of two roles, the wall between first claim and last finish, the worker's memory."""

    worker_seconds: float
    publisher_seconds: float
    wall_seconds: float
    worker_mib: float


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """For each broker the CPU and the time per job, and the memory at the end."""
    jobs, slots = sizes["jobs"], sizes["slots"]
    figures: list[Figure] = []
    for url in _brokers():
        name = broker.kind(url)
        note(f"  on {name}")
        with broker.reserved(url), Backlog() as backlog, Children(folder / name) as children:
            spent = _measure(children, backlog, url, jobs, slots)
        figures += [
            Figure(f"worker, {name}", spent.worker_seconds / jobs * 1000, "ms CPU/job", bar=CPU_BAR),
            Figure(f"publisher, {name}", spent.publisher_seconds / jobs * 1000, "ms CPU/job"),
            Figure(f"end to end, {name}", jobs / spent.wall_seconds, "jobs/s", more_is_better=True),
            Figure(f"worker's memory, {name}", spent.worker_mib, "MiB", bar=PROCESS_MIB + SLOT_MIB * slots),
        ]
    return figures


def _brokers() -> list[str]:
    urls = [os.environ["BROKER_URL"], os.environ.get("TEST_AMQP_URL", "")]
    return list(dict.fromkeys(url for url in urls if url))


def _measure(children: Children, backlog: Backlog, url: str, jobs: int, slots: int) -> Spent:
    target = children.target()
    page = f"http://{target}/bytes/{SIZE}"
    publisher = children.role("publisher", BROKER_URL=url, **SETTINGS)
    worker = children.role("worker", BROKER_URL=url, WORKER_SLOTS=str(slots), EGRESS_ALLOW=target, **SETTINGS)
    backlog.finish(children, backlog.submit(page, WARM_UP_JOBS), seconds=START_SECONDS)
    before = cpu_seconds(worker), cpu_seconds(publisher)
    ids = backlog.submit(page, jobs)
    backlog.finish(children, ids, seconds=START_SECONDS + SLOWEST_JOB_SECONDS * jobs)
    after = cpu_seconds(worker), cpu_seconds(publisher)
    return Spent(
        worker_seconds=after[0] - before[0],
        publisher_seconds=after[1] - before[1],
        wall_seconds=backlog.seconds(ids),
        worker_mib=memory_mib(worker),
    )

"""What a small job costs a worker process: claim, fetch, store, finish, on each broker that is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import broker
from bench.backlog import UNLIMITED, Backlog
from bench.children import Children, Process, cpu_seconds, memory_mib
from bench.console import note
from bench.figures import Figure
from bench.target import LOOPBACK

SIZE = 20_480
CPU_BAR = 2.0  # ms
PROCESS_MIB, SLOT_MIB = 200, 1
WARM_UP_JOBS = 100
START_SECONDS = 30.0
SLOWEST_SECONDS = 0.05  # a job, before the benchmark is given up


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of each role between two moments."""

    worker: float
    publisher: float


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """For each broker the CPU and the time per job, and the memory at the end."""
    figures: list[Figure] = []
    for url in _brokers():
        note(f"  on {broker.kind(url)}")
        figures += _measure(url, sizes["jobs"], sizes["slots"], folder / broker.kind(url))
    return figures


def _brokers() -> list[str]:
    urls = [os.environ["BROKER_URL"], os.environ.get("TEST_AMQP_URL", "")]
    return list(dict.fromkeys(url for url in urls if url))


def _measure(url: str, jobs: int, slots: int, folder: Path) -> list[Figure]:
    broker.refuse_if_used(url)
    with Children(folder) as children:
        port = children.target()
        backlog = Backlog(port)
        allowed = f"{LOOPBACK}:{port}"
        publisher = children.role("publisher", BROKER_URL=url)
        worker = children.role("worker", BROKER_URL=url, WORKER_SLOTS=str(slots), EGRESS_ALLOW=allowed, **UNLIMITED)
        backlog.finish(children, backlog.submit(f"/bytes/{SIZE}", WARM_UP_JOBS), seconds=START_SECONDS)
        before = _spent(worker, publisher)
        ids = backlog.submit(f"/bytes/{SIZE}", jobs)
        backlog.finish(children, ids, seconds=30 + SLOWEST_SECONDS * jobs)
        after = _spent(worker, publisher)
        memory = memory_mib(worker)
    seconds = backlog.span(ids).total_seconds()
    broker.empty(url)
    backlog.clear()
    name = broker.kind(url)
    return [
        Figure(f"worker, {name}", (after.worker - before.worker) / jobs * 1000, "ms CPU/job", bar=CPU_BAR),
        Figure(f"publisher, {name}", (after.publisher - before.publisher) / jobs * 1000, "ms CPU/job"),
        Figure(f"end to end, {name}", jobs / seconds, "jobs/s", more_is_better=True),
        Figure(f"worker's memory, {name}", memory, "MiB", bar=PROCESS_MIB + SLOT_MIB * slots),
    ]


def _spent(worker: Process, publisher: Process) -> Spent:
    return Spent(cpu_seconds(worker), cpu_seconds(publisher))

"""Which benchmarks there are and how much each does. No app is imported here: Django is not set up yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class BenchFailed(Exception):
    """The benchmark could not measure; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One entry of the list; its module is `bench.<name>`.

    `sizes` are its options with their defaults, all of them counts, and `tiny` the same for a run that only shows that
    it works; `limit_seconds` is when it is given up.
    """

    name: str
    summary: str
    sizes: Mapping[str, int]
    tiny: Mapping[str, int]
    uses_database: bool = True
    limit_seconds: float = 240.0


ALL: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "uploads",
            "CPU of storing 20 KB: the worker's store (obstore) beside boto3",
            {"rounds": 7, "puts": 100},
            {"rounds": 1, "puts": 8},
            uses_database=False,
        ),
        Benchmark(
            "fetch",
            "CPU of fetching 20 KB: the Fetcher beside the HTTP clients it could have been made of",
            {"rounds": 5, "fetches": 300},
            {"rounds": 1, "fetches": 20},
            uses_database=False,
            limit_seconds=900.0,
        ),
        Benchmark(
            "pool",
            "jobs of one second on one worker process with 20 slots",
            {"jobs": 200, "slots": 20},
            {"jobs": 20, "slots": 20},
        ),
        Benchmark(
            "worker",
            "CPU of one worker process per 20 KB job, claim to finish",
            {"jobs": 2000, "slots": 20},
            {"jobs": 20, "slots": 20},
        ),
        Benchmark(
            "steady",
            "memory of one process over many fetches of 20 KB",
            {"fetches": 20_000, "slots": 20},
            {"fetches": 2000, "slots": 10},
            uses_database=False,
            limit_seconds=1200.0,
        ),
        Benchmark(
            "memory",
            "memory of one worker process with bombs, and with a large body in each slot",
            {"slots": 20, "mib": 20, "bombs": 8},
            {"slots": 2, "mib": 3, "bombs": 2},
            limit_seconds=1200.0,
        ),
        Benchmark(
            "intake",
            "single posts a second against the web role",
            {"seconds": 8, "clients": 4, "at_once": 4},
            {"seconds": 1, "clients": 1, "at_once": 2},
        ),
        Benchmark(
            "reads",
            "reads of single jobs: how many, beside intake, and how soon they show an ending",
            {"seconds": 8, "readers": 50, "jobs": 500, "storm": 8, "rounds": 3, "endings": 30},
            {"seconds": 1, "readers": 4, "jobs": 20, "storm": 2, "rounds": 1, "endings": 1},
        ),
        Benchmark(
            "lists",
            "lists, events and figures of a tenant with many jobs, and a full batch",
            {"jobs": 1_000_000, "page": 1000, "reads": 60, "batch": 10_000, "batches": 5},
            {"jobs": 2000, "page": 3, "reads": 2, "batch": 20, "batches": 1},
            limit_seconds=600.0,
        ),
        Benchmark(
            "dispatch",
            "a pass of the dispatcher over a large backlog, and over one ten times smaller",
            {"jobs": 1_000_000, "tenants": 1000, "hosts": 1000, "passes": 60, "at_once": 250},
            {"jobs": 1000, "tenants": 10, "hosts": 10, "passes": 1, "at_once": 20},
            limit_seconds=600.0,
        ),
        Benchmark(
            "politeness",
            "what a limited host sees of several workers and tenants, and whether other hosts' jobs get past it",
            {"seconds": 60, "jobs": 2000, "workers": 4},
            {"seconds": 4, "jobs": 30, "workers": 1},
            limit_seconds=400.0,
        ),
        Benchmark(
            "webhooks",
            "how soon a receiver hears of ended jobs beside one that hangs, and what is lost when processes are killed",
            {"rate": 20, "seconds": 30, "jobs": 1000, "kills": 5},
            {"rate": 5, "seconds": 2, "jobs": 10, "kills": 1},
            limit_seconds=600.0,
        ),
        Benchmark("wakeup", "from a job's commit to its claim in an idle stack", {"jobs": 30}, {"jobs": 2}),
    )
}

# Not among all: it takes its minutes, and measures how the service breaks, not how fast it is.
CHAOS = Benchmark(
    "chaos",
    "a pool under load while all that it stands on breaks, by a seeded plan of faults",
    {"minutes": 5, "seed": 1, "rate": 13},
    {"minutes": 1, "seed": 1, "rate": 8},
    uses_database=False,
    limit_seconds=7 * 24 * 3600.0,  # as long as it was asked to take
)
BY_NAME: dict[str, Benchmark] = {**ALL, CHAOS.name: CHAOS}

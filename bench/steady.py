"""Whether a worker's process grows with what it has fetched: the Fetcher's memory over many pages of 20 KB.

The Fetcher alone, in a process of its own: with claims and uploads the same count would take half an hour.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from bench.catalogue import BenchFailed
from bench.children import Children
from bench.figures import Figure

TENTHS = 10
SAMPLES = 100
"""Looks at the memory in the whole run."""
BAR = 1.05


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """The medians of the second tenth and of the last one, and what that makes."""
    with Children(folder) as children:
        url = f"http://{children.target()}/bytes/20480"
        process = children.python("bench.fetching", url, str(sizes["fetches"]), str(sizes["slots"]), str(SAMPLES))
        assert process.stdout is not None
        seen = [float(line) for line in process.stdout]
        if process.wait() != 0 or len(seen) != SAMPLES + 1:
            raise BenchFailed(f"The fetching process ended early; see {folder}.")
    *resident, cpu_ms = seen
    size = SAMPLES // TENTHS
    tenths = [statistics.median(resident[size * index : size * (index + 1)]) for index in range(TENTHS)]
    return [
        Figure("second tenth of the fetches", tenths[1], "MiB"),
        Figure("last tenth", tenths[-1], "MiB"),
        Figure("last beside second", tenths[-1] / tenths[1], "times", bar=BAR),
        Figure("CPU", cpu_ms, "ms/fetch"),
    ]

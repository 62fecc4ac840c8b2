"""`python -m bench.fetching URL COUNT SLOTS SAMPLES`: fetch URL again and again with one Fetcher, SLOTS at once.

Prints the resident memory in MiB after each of SAMPLES equal parts, then the CPU in ms for one fetch.
"""

from __future__ import annotations

import asyncio
import sys
import time

import psutil

from bench.catalogue import BenchFailed
from bench.target import LOOPBACK
from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchRequest


async def main(url: str, count: int, slots: int, samples: int) -> None:
    """Raises BenchFailed for a fetch that fails."""
    fetcher = Fetcher(egress=EgressGuard([LOOPBACK]), user_agent="bench", max_connections=slots)
    request = FetchRequest(url, "GET", (), b"", deadline_seconds=30, max_bytes=1_000_000, follow_redirects=True)
    process = psutil.Process()
    started = time.process_time()
    for _ in range(samples):
        await asyncio.gather(*(_some(fetcher, request, -(-count // samples // slots)) for _ in range(slots)))
        print(process.memory_info().rss / 2**20, flush=True)
    print((time.process_time() - started) / count * 1000, flush=True)


async def _some(fetcher: Fetcher, request: FetchRequest, count: int) -> None:
    for _ in range(count):
        outcome = await fetcher.fetch(request)
        if outcome.body is None:
            raise BenchFailed(f"A fetch ended as {outcome.error_code}.")
        outcome.body.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))

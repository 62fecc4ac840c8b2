"""Run by test_memory.py in a process of its own: fetches URL, COUNT times at once, and prints what that cost.

Prints a JSON object: the error codes, the bytes and hashes of the bodies, and by how many MiB the process has grown.
"""

import asyncio
import json
import sys
from pathlib import Path

from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchOutcome, FetchRequest


def status_mib(name: str) -> float:
    """A figure of this process: VmRSS now, VmHWM its peak (getrusage's would start at that of the parent process)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


async def probe(url: str, count: int, max_bytes: int, spool: str) -> dict[str, object]:
    fetcher = Fetcher(egress=EgressGuard(["127.0.0.1"]), user_agent="a", max_connections=count, spool_directory=spool)
    await fetcher.fetch(order(url.replace("/case", "/warm-up"), max_bytes))
    before = status_mib("VmRSS")
    outcomes = await asyncio.gather(*(fetcher.fetch(order(url, max_bytes)) for _ in range(count)))
    peak = status_mib("VmHWM")
    return {"grown": peak - before, "codes": [outcome.error_code for outcome in outcomes],
            "bodies": [described(outcome) for outcome in outcomes]}  # fmt: skip


def order(url: str, max_bytes: int) -> FetchRequest:
    return FetchRequest(
        url=url, method="GET", headers=(), body=b"", deadline_seconds=120, max_bytes=max_bytes, follow_redirects=True
    )


def described(outcome: FetchOutcome) -> tuple[int, str] | None:
    return None if outcome.body is None else (outcome.body.size, outcome.body.sha256)


if __name__ == "__main__":
    address, number, cap, directory = sys.argv[1:]
    print(json.dumps(asyncio.run(probe(address, int(number), int(cap), directory))))

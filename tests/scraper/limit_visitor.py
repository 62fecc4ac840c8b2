"""A process that calls one host as hard as the limiter lets it. Its command is `COMMAND`, then REDIS_URL HOST SECONDS
CALLERS; it prints, as JSON, how often it was let through and how often not."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
import uuid

from scraper.host_records import HostRecords
from scraper.politeness import Denial, Limiter
from scraper.visits import Visit

PREFIX = "visitors:"
COMMAND = (
    sys.executable,
    "-c",
    "import django; django.setup(); from tests.scraper import limit_visitor; limit_visitor.run()",
)


async def call(limiter: Limiter, host: str, ends: float, counts: dict[str, int]) -> None:
    while time.monotonic() < ends:
        (answer,) = await limiter.acquire([host])
        if isinstance(answer, Denial):
            counts[answer.reason] = counts.get(answer.reason, 0) + 1
            await asyncio.sleep(min(answer.seconds, 0.5) * random.random())
            continue
        counts["granted"] = counts.get("granted", 0) + 1
        visit = Visit(limiter, answer)
        await visit.enter(host, within=1.0)
        try:
            await fetch(host, visit)
        finally:
            visit.leave()


async def fetch(host: str, visit: Visit) -> None:
    name, _, port = host.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write(f"GET /{uuid.uuid4()} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = (await reader.read()).decode()
    finally:
        writer.close()
    head = dict(line.split(": ", 1) for line in answer.partition("\r\n\r\n")[0].split("\r\n")[1:])
    visit.answered(int(answer.split(" ", 2)[1]), head.get("Retry-After"))


async def visit_for(url: str, host: str, seconds: float, callers: int) -> None:
    limiter = Limiter(HostRecords(), url=url, process=f"visitor:{os.getpid()}:{uuid.uuid4().hex[:8]}", prefix=PREFIX)
    await limiter.start()
    counts: dict[str, int] = {}
    ends = time.monotonic() + seconds
    calls = [asyncio.create_task(call(limiter, host, ends, counts)) for _ in range(callers)]
    await asyncio.wait(calls, timeout=seconds + 5)
    for one in calls:
        one.cancel()
    await limiter.close()
    print(json.dumps(counts))


def run() -> None:
    asyncio.run(visit_for(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))

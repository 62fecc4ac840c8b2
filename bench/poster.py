"""One client process that posts: `python -m bench.poster PORT KEY SECONDS CONNECTIONS [RATE]`.

Posts one job after the other on each of its kept connections, RATE a second in all or as fast as answers come, and
prints what it saw as JSON. It writes prepared bytes
and reads no more of an answer than it must: its CPU is taken from the server on the same machine.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from bench.target import LOOPBACK

BODY = b'{"url": "https://example.com/some/page?number=1", "tags": ["bench"], "priority": "normal"}'
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Seen:
    """Milliseconds of each answer, and how often each status came."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


def request_bytes(port: int, key: str) -> bytes:
    return (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    ).encode() + BODY


async def post_until(end: float, port: int, request: bytes, seen: Seen, pause: float) -> None:
    """Post on one connection until the monotonic time `end`, each time `pause` seconds after the time before."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    due = time.monotonic() + random.uniform(0, pause)
    while (started := time.monotonic()) < end:
        if due > started:
            await asyncio.sleep(due - started)
            started = time.monotonic()
        due += pause
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        await reader.readexactly(int(length[1]) if length else 0)
        seen.milliseconds.append((time.monotonic() - started) * 1000)
        seen.statuses[int(head[9:12])] += 1
    writer.close()


async def main(port: int, key: str, seconds: float, connections: int, rate: float = math.inf) -> Seen:
    seen = Seen()
    end = time.monotonic() + seconds
    request = request_bytes(port, key)
    await asyncio.gather(*(post_until(end, port, request, seen, connections / rate) for _ in range(connections)))
    return seen


if __name__ == "__main__":
    rates = [float(rate) for rate in sys.argv[5:]]
    result = asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), *rates))
    print(json.dumps({"milliseconds": result.milliseconds, "statuses": result.statuses}))

"""The readers of the reads benchmark, in one process: `python -m bench.reader PORT KEY SECONDS CONNECTIONS`.

Job ids come on stdin, one a line. Each connection asks for all of them over and over, in an order of its own and
without a pause; what all saw is printed as JSON. It sends prepared bytes and looks at no more of an answer than it
must: its CPU is taken from the server on the same machine.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import cast

from bench.target import LOOPBACK

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def request_bytes(port: int, key: str, job_id: str) -> bytes:
    return (
        f"GET /api/v1/jobs/{job_id} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nAuthorization: Bearer {key}\r\n"
        "Accept: application/json\r\n\r\n"
    ).encode()


class Reader(asyncio.Protocol):
    """One connection, one question after the other until `end`; then `done` is set."""

    def __init__(self, requests: Sequence[bytes], end: float) -> None:
        self._requests = cycle(requests)
        self._end = end
        self._received = b""
        self.milliseconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._asked = time.monotonic()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        length = LENGTH.search(self._received, 0, head + 2)
        if len(self._received) < head + 4 + (int(length[1]) if length else 0):
            return
        now = time.monotonic()
        self.milliseconds.append((now - self._asked) * 1000)
        self.statuses[int(self._received[9:12])] += 1
        self._received = b""
        if now < self._end:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def read(port: int, key: str, seconds: float, connections: int, job_ids: Sequence[str]) -> list[Reader]:
    """What `connections` readers saw in `seconds`."""
    loop, end = asyncio.get_running_loop(), time.monotonic() + seconds
    readers = []
    for _ in range(connections):
        requests = [request_bytes(port, key, job_id) for job_id in random.sample(job_ids, len(job_ids))]
        _, reader = await loop.create_connection(lambda r=requests: Reader(r, end), LOOPBACK, port)  # type: ignore[misc]
        readers.append(reader)
    await asyncio.gather(*(reader.done for reader in readers))
    return readers


if __name__ == "__main__":
    ids = sys.stdin.read().split()
    seen = asyncio.run(read(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), ids))
    print(
        json.dumps(
            {
                "milliseconds": [round(value, 3) for reader in seen for value in reader.milliseconds],
                "statuses": sum((reader.statuses for reader in seen), Counter()),
                "cpu_seconds": time.process_time(),
            }
        )
    )

"""The site that jobs under fire are sent to. It keeps a log of its own: when each request came and when it was over,
answered or given up by the client, which is how long the attempt was alive as the target sees it.

`/<job>?seconds=S&refusals=N&wait=W&hangs=H&status=C&bytes=B` answers after S seconds, the first H times never, the
first N times with 503 and `Retry-After: W`, then with C and, for 200, with B bytes that no other job's answer has.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, cast
from urllib.parse import parse_qs, urlsplit

LOOPBACK: Final = "127.0.0.1"
HEAD: Final = "HTTP/1.1 {} Word\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n"


@dataclass(slots=True)
class Visit:
    """One request; times in Unix seconds, `end` None while it is under way, `status` None when it got no answer."""

    job: str
    method: str
    start: float
    end: float | None = None
    status: int | None = None


def body_of(job: str, size: int) -> bytes:
    """The bytes that the target serves for a job."""
    line = f"the page of {job}\n".encode()
    return (line * (size // len(line) + 1))[:size]


class Target:
    """Serves from a thread of its own; a context manager. `visits` is complete, in the order of the starts."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.counts: Counter[str] = Counter()
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="target", daemon=True)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def _run(self) -> None:
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Answering(self), LOOPBACK, 0, backlog=512)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Answering(asyncio.Protocol):
    """One connection with one request."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._received = b""
        self._visit: Visit | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._visit is None and b"\r\n\r\n" in self._received:
            method, path, _ = self._received.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            self._begin(method, path)

    def connection_lost(self, error: Exception | None) -> None:
        if self._visit is not None and self._visit.end is None:
            self._visit.end = time.time()

    def _begin(self, method: str, path: str) -> None:
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        job = parts.path.lstrip("/")
        self._visit = Visit(job, method, time.time())
        self._target.visits.append(self._visit)
        self._target.counts[job] += 1
        visits = self._target.counts[job]
        refused = visits <= int(query.get("refusals", 0))
        status = 503 if refused else int(query.get("status", 200))
        body = body_of(job, int(query.get("bytes", 200))) if status == 200 else b"no\n"
        extra = f"Retry-After: {query['wait']}\r\n" if refused and "wait" in query else ""
        head = HEAD.format(status, len(body), extra).encode()
        if visits > int(query.get("hangs", 0)):
            delay = float(query.get("seconds", 0))
            asyncio.get_running_loop().call_later(delay, self._answer, self._visit, status, head + body)

    def _answer(self, visit: Visit, status: int, answer: bytes) -> None:
        if visit.end is None:  # else the client left
            visit.status, visit.end = status, time.time()
            self._transport.write(answer)
            self._transport.close()

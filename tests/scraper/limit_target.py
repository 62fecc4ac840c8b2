"""A target that writes down when each request came and went, and what such a log says of limits."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

Answer = tuple[int, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, in monotonic seconds: from its head's arrival until its answer was written."""

    began: float
    ended: float
    path: str
    status: int


class LimitTarget:
    """Answers each request after `hold` seconds with what `answer(path)` says: a status and headers."""

    def __init__(self, *, hold: float = 0.0, answer: Callable[[str], Answer] = lambda path: (200, {})) -> None:
        self.hold = hold
        self.answer = answer
        self.log: list[Visit] = []
        target = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                target.converse(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def converse(self, link: socket.socket) -> None:
        """One connection, one request."""
        head = b""
        while b"\r\n\r\n" not in head:
            piece = link.recv(4096)
            if not piece:
                return
            head += piece
        began = time.monotonic()
        path = head.split(b" ", 2)[1].decode()
        status, headers = self.answer(path)
        time.sleep(self.hold)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.log.append(Visit(began, time.monotonic(), path, status))  # before: a caller may look at once
        link.sendall(f"HTTP/1.1 {status} X\r\n{lines}Content-Length: 2\r\nConnection: close\r\n\r\nok".encode())

    @property
    def times(self) -> list[float]:
        """When requests came, in order."""
        return sorted(visit.began for visit in list(self.log))


def excess(times: Sequence[float], *, rate: float, burst: float) -> float:
    """By how many requests the worst window holds more than burst + rate x its length; at most 0 when none does."""
    worst, least = float("-inf"), float("inf")
    for number, moment in enumerate(times):
        least = min(least, number - rate * moment)
        worst = max(worst, number + 1 - rate * moment - least - burst)
    return worst


def most_at_once(visits: Sequence[Visit]) -> int:
    """The largest number of requests that were there at the same time."""
    steps = sorted([(visit.began, 1) for visit in visits] + [(visit.ended, -1) for visit in visits])
    present = most = 0
    for _, step in steps:
        present += step
        most = max(most, present)
    return most

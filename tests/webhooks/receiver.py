"""A receiver of webhooks on loopback that keeps all it was sent, and answers as the test says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Received:
    """One request; `at` in Unix seconds."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float = field(default_factory=time.time)

    @property
    def webhook_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def document(self) -> dict[str, Any]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


@dataclass(frozen=True, slots=True)
class Reply:
    """What the receiver answers, after `seconds`."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    receiver: Receiver


class Receiver:
    """Serves while the `with` block runs; `reply` is asked for each request."""

    def __init__(self, reply: Callable[[Received], Reply] = lambda received: Reply()) -> None:
        self.reply = reply
        self.received: list[Received] = []
        self.stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def allowed(self) -> str:
        """The EGRESS_ALLOW entry for this server alone."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def ids(self) -> list[str]:
        return [received.webhook_id for received in self.received]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        received = Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        receiver.received.append(received)
        reply = receiver.reply(received)
        if reply.seconds and receiver.stopping.wait(reply.seconds):
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

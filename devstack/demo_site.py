"""The site that the demo and the tests fetch from: `python -m devstack.demo_site PORT`. Listens on loopback only.

| path | answer |
|---|---|
| `/fast` | a small page at once |
| `/slow?seconds=2` | the same after a while |
| `/flaky/<nonce>` | 503 twice, then the page; each nonce counts for itself |
| `/limited/<nonce>` | 429 with `Retry-After: 1` once, then the page |
| `/missing` | 404 |
| `/big` | BIG_BYTES bytes |
| `/bytes/<n>` | n bytes |
| `/redirect` | 302 to `/fast` |
| `/echo` | method, path, headers and body of the request, as JSON |
| `/_log` | the latest requests, as JSON: method, path, status, start and end in Unix seconds |
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAME = "demo-site"
LOOPBACK = "127.0.0.1"
BIG_BYTES = 5 * 1024 * 1024
FLAKY_FAILURES = 2
RETRY_AFTER_SECONDS = 1
MAX_SLOW_SECONDS = 120.0
MAX_BYTES = 256 * 1024 * 1024
LOGGED_REQUESTS = 20_000
PATTERN = bytes(range(256)) * 256
PAGE = b"<!doctype html><html><head><title>Demo</title></head><body><h1>Hello from the demo site</h1></body></html>\n"


class DemoSite:
    """The site in threads of this process: a context manager for tests. Port 0 takes any free one."""

    def __init__(self, port: int = 0) -> None:
        self.visits: Counter[str] = Counter()  # of the paths with a nonce
        self.log: deque[dict[str, Any]] = deque(maxlen=LOGGED_REQUESTS)
        self.lock = threading.Lock()
        self._server = _Server((LOOPBACK, port), _Handler)
        self._server.site = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def __enter__(self) -> DemoSite:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self) -> None:
        self._server.serve_forever()

    def count_visit(self, path: str) -> int:
        """How often `path` was asked for, this time included."""
        with self.lock:
            self.visits[path] += 1
            return self.visits[path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # the default of 5 drops connections when hundreds come at once
    site: DemoSite


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet; in two, the second waits for a delayed ACK
    timeout = 60.0

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr: `/_log` is the record."""

    def _answer(self) -> None:
        began = time.time()
        self._status = 0
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        name, _, argument = parts.path.lstrip("/").partition("/")
        try:
            self._dispatch(name, argument, parse_qs(parts.query), body)
            with suppress(OSError):
                self.wfile.flush()
        finally:
            entry = {"method": self.command, "path": self.path, "status": self._status, "start": began}
            self.server.site.log.append({**entry, "end": time.time()})

    def _dispatch(self, name: str, argument: str, query: dict[str, list[str]], body: bytes) -> None:
        match name:
            case "fast":
                self._send(200, PAGE)
            case "slow":
                time.sleep(min(float(query.get("seconds", ["2"])[0]), MAX_SLOW_SECONDS))
                self._send(200, PAGE)
            case "flaky" | "limited":
                self._refuse_at_first(name)
            case "big":
                self._send(200, pattern(BIG_BYTES), kind="application/octet-stream")
            case "bytes" if argument.isdigit() and int(argument) <= MAX_BYTES:
                self._send(200, pattern(int(argument)), kind="application/octet-stream")
            case "redirect":
                self._send(302, b"", {"Location": "/fast"})
            case "echo":
                seen = {"method": self.command, "path": self.path, "headers": dict(self.headers.items())}
                self._send_json({**seen, "body": body.decode(errors="replace")})
            case "_log":
                self._send_json(list(self.server.site.log))
            case _:
                self._send(404, b"there is no such page\n")

    def _refuse_at_first(self, name: str) -> None:
        visit = self.server.site.count_visit(self.path)
        if name == "flaky" and visit <= FLAKY_FAILURES:
            self._send(503, b"not yet\n")
        elif name == "limited" and visit == 1:
            self._send(429, b"slow down\n", {"Retry-After": str(RETRY_AFTER_SECONDS)})
        else:
            self._send(200, PAGE)

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), kind="application/json")

    def _send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, kind: str = "text/html; charset=utf-8"
    ) -> None:
        self._status = status
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        try:
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the client left early; that is its right


def pattern(count: int) -> bytes:
    """`count` bytes that are the same every time, so that a test can know their digest."""
    return (PATTERN * (count // len(PATTERN) + 1))[:count]


def main(arguments: Sequence[str]) -> None:
    site = DemoSite(int(arguments[0]))
    print(f"serving {site.url}", flush=True)
    site.serve()


if __name__ == "__main__":
    main(sys.argv[1:])

"""A TCP server that answers with raw bytes: it plays the `steps` of tests/cases/fetch_cases.json (see its README)."""

import contextlib
import functools
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import brotli
from backports import zstd

Step = Mapping[str, Any]


class RawServer:
    """Plays `steps` for each request to `path`; any other path gets a 200 with the request's head as its body.

    Listens on `address` while the `with` block runs, on a free port unless `port` says. `requests` are the bytes that
    came, `connections` how many were accepted. With `context` it speaks TLS.
    """

    path = "/case"

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        context: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.steps = steps
        self.requests: list[bytes] = []
        self.pages: dict[str, str] = {}
        """What other paths answer with, raw."""
        self.connections = 0
        self._context = context
        self.address = address
        self._listener = socket.create_server((address, port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        scheme = "https" if self._context else "http"
        return f"{scheme}://{self.address}:{self.port}{self.path}"

    @property
    def allowed(self) -> str:
        """The EGRESS_ALLOW entry for this server alone."""
        return f"{self.address}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), connection:
            if self._context is not None:
                with self._context.wrap_socket(connection, server_side=True) as wrapped:
                    self._answer(wrapped)
            else:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        request = read_request(connection)
        self.requests.append(request)
        line = request.partition(b"\r\n")[0]
        if line.split(b" ")[1:2] == [self.path.encode()]:
            for step in self.steps:
                self._play(connection, step)
        elif page := self.pages.get(line.split(b" ")[1].decode("latin-1")):
            connection.sendall(page.encode("latin-1"))
        else:
            head = request.partition(b"\r\n\r\n")[0]
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))
        drain(connection)

    def _play(self, connection: socket.socket, step: Step) -> None:
        if "send" in step:
            data = step["send"].replace("/SELF", self.path).encode("latin-1")
            for _ in range(step.get("times", 1)):
                connection.sendall(data)
        elif "sleep" in step:
            self._stopping.wait(step["sleep"])
        elif "drip" in step:
            for _ in range(step["times"]):
                connection.sendall(step["drip"].encode("latin-1"))
                if self._stopping.wait(step["every"]):
                    return
        elif "reset" in step:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        else:
            coding = step["headers_for_zeros"]
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\n\r\n" % coding.encode())
            connection.sendall(compressed_zeros(coding, step["zeros"]))


def read_request(connection: socket.socket) -> bytes:
    """One request: its head, and its body when it has a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            while len(body) < int(line.partition(b":")[2]):
                body += _received(connection)
    return head + b"\r\n\r\n" + body


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionResetError("the client closed")
    return data


def drain(connection: socket.socket) -> None:
    """End as a server does, so that what was sent arrives: closing over unread bytes would reset the connection."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


@functools.cache
def compressed_zeros(coding: str, size: int) -> bytes:
    """`size` zero bytes in `coding`, made in pieces."""
    piece = bytes(min(size, 1024 * 1024))
    pieces = size // len(piece)
    if coding == "br":
        brotli_stream = brotli.Compressor(quality=5)
        parts = [brotli_stream.process(piece) for _ in range(pieces)] + [brotli_stream.finish()]
    elif coding == "zstd":
        zstd_stream = zstd.ZstdCompressor(level=3)
        parts = [zstd_stream.compress(piece) for _ in range(pieces)] + [zstd_stream.flush()]
    else:
        zlib_stream = zlib.compressobj(1, wbits=31)
        parts = [zlib_stream.compress(piece) for _ in range(pieces)] + [zlib_stream.flush()]
    return b"".join(parts)


def wait_until(condition: Any, seconds: float = 5.0) -> bool:
    """Poll `condition` until it is true or the time is over."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True

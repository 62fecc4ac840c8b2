"""A way to a server that can be cut, so that an outage of a server that others use as well stays ours alone."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

LOOPBACK: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 5.0
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: closing sends RST instead of FIN
USUAL_PORTS: Final = {"redis": 6379, "amqp": 5672, "postgres": 5432, "postgresql": 5432, "http": 80}


class Proxy:
    """Forwards connections from a port of its own to `host:port`, until it is cut; a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._far = (host, port)
        self._links: dict[socket.socket, socket.socket] = {}  # whoever came here, and the way on
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._server = self._listen(0)
        self.port = int(self._server.getsockname()[1])
        self._serve()

    @classmethod
    def to(cls, url: str) -> Self:
        """To the server that a URL names."""
        parts = urlsplit(url)
        return cls(parts.hostname or LOOPBACK, parts.port or USUAL_PORTS[parts.scheme])

    def instead_of(self, url: str) -> str:
        """`url` with this proxy for its server."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}{LOOPBACK}:{self.port}"))

    def reset(self, ports: Collection[int] | None = None) -> int:
        """Break the connections that come from `ports`, or all; new ones are let in. Returns how many there were."""
        with self._lock:
            pairs = [pair for pair in self._links.items() if ports is None or _port_of(pair[0]) in ports]
        for near, far in pairs:
            _close(near)
            _close(far)
        return len(pairs)

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        _close(self._server)
        self.reset()

    def mend(self) -> None:
        """Let connections in again, on the same port."""
        self._server = self._listen(self.port)
        self._serve()

    def freeze(self) -> None:
        """Let nothing through any more; connections stay, and say nothing."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let new connections through; what the frozen ones held is lost with them."""
        self.reset()
        self._flowing.set()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        return socket.create_server((LOOPBACK, port), backlog=128)

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near = server.accept()[0]
                threading.Thread(target=self._join, args=(near, server), daemon=True).start()

    def _join(self, near: socket.socket, server: socket.socket) -> None:
        try:
            far = socket.create_connection(self._far, CONNECT_SECONDS)
        except OSError:
            _close(near)
            return
        far.settimeout(None)
        with self._lock:
            cut_meanwhile = server.fileno() < 0
            if not cut_meanwhile:
                self._links[near] = far
        if cut_meanwhile:
            _close(near)
            _close(far)
            return
        threading.Thread(target=self._carry, args=(far, near), daemon=True).start()
        self._carry(near, far)
        with self._lock:
            del self._links[near]

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                sink.sendall(data)
        for link in (source, sink):
            _close(link)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._flowing.set()


def _port_of(near: socket.socket) -> int:
    """From which a client came; 0 when it has left."""
    try:
        return int(near.getpeername()[1])
    except OSError:
        return 0


def _close(link: socket.socket) -> None:
    """Wakes whoever waits on it, too; one that is closed already is no error."""
    with suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()

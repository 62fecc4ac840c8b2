"""A small real proxy: HTTP (CONNECT and forwarding, over TLS too) and SOCKS5, with or without credentials."""

import base64
import contextlib
import ipaddress
import socket
import ssl
import threading
from types import TracebackType
from typing import Self

from tests.scraper.raw_server import drain, read_request


class ProxyServer:
    """Connects to whatever it is asked for, names by `names` (host to address), while the `with` block runs.

    `asked` is what it was asked to connect to; `heads` the heads of the HTTP requests that came. `answer`, when given,
    is all that it says to whoever comes, after one read.
    """

    def __init__(
        self,
        scheme: str = "http",
        *,
        credentials: tuple[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        answer: bytes | None = None,
        names: dict[str, str] | None = None,
    ) -> None:
        self.scheme = scheme
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self._credentials = credentials
        self._context = context
        self._answer = answer
        self._names = names or {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def allowed(self) -> str:
        """The EGRESS_ALLOW entry for this proxy alone."""
        return f"127.0.0.1:{self.port}"

    def url(self, userinfo: str = "") -> str:
        return f"{self.scheme}://{userinfo}127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._context is not None:
                with self._context.wrap_socket(connection, server_side=True) as wrapped:
                    self._talk(wrapped)
            else:
                self._talk(connection)

    def _talk(self, client: socket.socket) -> None:
        if self._answer is not None:
            client.recv(65536)
            client.sendall(self._answer)
            drain(client)
            with contextlib.suppress(OSError):
                client.recv(65536)
        elif self.scheme == "socks5":
            self._socks(client)
        else:
            self._http(client)

    def _http(self, client: socket.socket) -> None:
        request = read_request(client)
        head = request.partition(b"\r\n\r\n")[0]
        self.heads.append(head)
        if self._credentials is not None:
            pair = base64.b64encode(":".join(self._credentials).encode())
            if b"\r\nProxy-Authorization: Basic " + pair + b"\r\n" not in head + b"\r\n":
                client.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 4\r\n\r\nwho?")
                return
        method, place, _ = head.split(b"\r\n")[0].split(b" ")
        if method == b"CONNECT":
            host, _, port = place.decode().rpartition(":")
            with self._reach(host.strip("[]"), int(port)) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                relay(client, server)
            return
        authority, _, path = place.decode().removeprefix("http://").partition("/")
        host, _, port = authority.partition(":")
        with self._reach(host, int(port or 80)) as server:
            lines = [line for line in request.split(b"\r\n") if not line.startswith(b"Proxy-Authorization")]
            server.sendall(b"\r\n".join([head.split(b" ")[0] + b" /" + path.encode() + b" HTTP/1.1", *lines[1:]]))
            relay(client, server)

    def _socks(self, client: socket.socket) -> None:
        _, count = client.recv(2)
        offered = client.recv(count)
        wanted = 0 if self._credentials is None else 2
        client.sendall(bytes([5, wanted if wanted in offered else 0xFF]))
        if wanted not in offered:
            return
        if wanted == 2:
            _, size = client.recv(2)
            username = client.recv(size).decode()
            password = client.recv(client.recv(1)[0]).decode()
            good = (username, password) == self._credentials
            client.sendall(bytes([1, 0 if good else 1]))
            if not good:
                return
        _, _, _, kind = client.recv(4)
        host = {
            1: lambda: str(ipaddress.IPv4Address(client.recv(4))),
            3: lambda: client.recv(client.recv(1)[0]).decode(),
            4: lambda: str(ipaddress.IPv6Address(client.recv(16))),
        }[kind]()
        port = int.from_bytes(client.recv(2), "big")
        with self._reach(host, port) as server:
            for byte in b"\x05\x00\x00\x03\x05proxy\x00\x50":  # in pieces, with a name, as any proxy may
                client.sendall(bytes([byte]))
            relay(client, server)

    def _reach(self, host: str, port: int) -> socket.socket:
        self.asked.append(f"{host}:{port}")
        return socket.create_connection((self._names.get(host, host), port), timeout=5)


def relay(client: socket.socket, server: socket.socket) -> None:
    """Both ways, until the server has said all."""
    back = threading.Thread(target=_copy, args=(client, server), daemon=True)
    back.start()
    _copy(server, client)
    drain(client)
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    back.join(2)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)

"""The web server that benchmarks fetch from: `python -m bench.target`, in a process of its own, so that its CPU is not
counted. It does as little as it can: the demo site's threads would take the machine's second core.

`/bytes/<n>` answers n bytes, `/slow/<seconds>` a few bytes after a while. Connections are kept unless the client
asks to close them.
"""

from __future__ import annotations

import asyncio
from typing import cast

LOOPBACK = "127.0.0.1"
PAGE = b"a page\n"
HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nServer: target\r\n"
    "Date: Sun, 29 Nov 2026 10:00:00 GMT\r\nCache-Control: no-store\r\nContent-Length: {}\r\n{}\r\n"
)
CLOSING = "Connection: close\r\n"


class Answering(asyncio.Protocol):
    """One connection; requests without bodies, one after the other."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if end:
            self._received = rest
            self._answer(head.split(b" ", 2)[1].decode("latin-1"), b"connection: close" in head.lower())

    def _answer(self, path: str, close: bool) -> None:
        name, _, argument = path.lstrip("/").partition("?")[0].partition("/")
        if name == "slow":
            asyncio.get_running_loop().call_later(float(argument), self._send, PAGE, close)
        else:
            self._send(b"x" * int(argument), close)

    def _send(self, body: bytes, close: bool) -> None:
        self._transport.write(HEAD.format(len(body), CLOSING if close else "").encode() + body)
        if close:
            self._transport.close()


async def main() -> None:
    """Serve on a free port, told on stdout, until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Answering, LOOPBACK, 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

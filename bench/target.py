"""The web server that benchmarks fetch from: `python -m bench.target`, in a process of its own, so that its CPU is not
counted. It does as little as it can: the demo site's threads would take the machine's second core.

`/bytes/<n>` answers n bytes, `/slow/<seconds>` a few bytes after a while, `/large/<n>` n MiB as fast as they are read,
`/bomb/<coding>` 256 MiB of zeros in that content coding. Connections are kept unless the client asks to close them.
"""

from __future__ import annotations

import asyncio
import functools
import zlib
from typing import cast

import brotli
from backports import zstd

LOOPBACK = "127.0.0.1"
PAGE = b"a page\n"
HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nServer: target\r\n"
    "Date: Sun, 29 Nov 2026 10:00:00 GMT\r\nCache-Control: no-store\r\nContent-Length: {}\r\n{}\r\n"
)
CLOSING = "Connection: close\r\n"
MIB = 2**20
BOMB_MIB = 256


LARGE_PIECE = bytes(range(256)) * (MIB // 256)


@functools.cache
def bomb(coding: str) -> bytes:
    """BOMB_MIB of zero bytes in `gzip`, `br` or `zstd`, made in pieces of 1 MiB."""
    piece = bytes(MIB)
    if coding == "br":
        br = brotli.Compressor(quality=5)
        return b"".join([*(br.process(piece) for _ in range(BOMB_MIB)), br.finish()])
    stream = zstd.ZstdCompressor(level=3) if coding == "zstd" else zlib.compressobj(1, wbits=31)
    return b"".join([*(stream.compress(piece) for _ in range(BOMB_MIB)), stream.flush()])


class Answering(asyncio.Protocol):
    """One connection; requests without bodies, one after the other."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._left = 0  # MiB of a large body that are still to be sent
        self._held = False

    def pause_writing(self) -> None:
        self._held = True

    def resume_writing(self) -> None:
        self._held = False
        self._pour()

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
        elif name == "large":
            self._transport.write(HEAD.format(int(argument) * MIB, CLOSING).encode())
            self._left = int(argument)
            self._pour()
        elif name == "bomb":
            body = bomb(argument)
            coding = f"Content-Encoding: {argument}\r\n"
            self._transport.write(HEAD.format(len(body), coding + CLOSING).encode() + body)
            self._transport.close()
        else:
            self._send(b"x" * int(argument), close)

    def _pour(self) -> None:
        while self._left and not self._held:
            self._left -= 1
            self._transport.write(LARGE_PIECE)
            if not self._left:
                self._transport.close()

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

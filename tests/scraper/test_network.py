"""The wire beneath the fetcher: what it holds back, and what it lets go of."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.network import GuardedBackend, GuardedStream
from scraper.outcomes import FetchFailed, FetchRequest
from scraper.wire import PAUSE_BYTES, ReadBuffer, Wire
from tests.scraper.raw_server import RawServer

MIB = 2**20


async def connected(server: RawServer, wire: Wire) -> tuple[GuardedStream, ReadBuffer]:
    guard = EgressGuard([server.allowed])
    stream = await GuardedBackend(guard, wire, connect_timeout=2, read_timeout=2).connect_tcp("127.0.0.1", server.port)
    assert isinstance(stream, GuardedStream)
    return stream, stream._buffer


async def read_to_the_end(stream: GuardedStream, piece: int) -> None:
    while await stream.read(piece):
        pass


def against(steps: list[dict[str, Any]], use: Callable[[RawServer, Wire], Awaitable[None]]) -> Wire:
    async def run(server: RawServer) -> Wire:
        wire = Wire()
        wire.start_hop(budget=100 * MIB)
        await use(server, wire)
        return wire

    with RawServer(steps) as server:
        return asyncio.run(run(server))


def test_what_nobody_reads_stays_in_the_socket() -> None:
    async def read_late(server: RawServer, wire: Wire) -> None:
        stream, buffer = await connected(server, wire)
        await stream.write(b"GET /case HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.3)
        assert buffer._size <= 3 * PAUSE_BYTES
        await read_to_the_end(stream, 65536)
        await stream.aclose()

    wire = against([{"send": "x" * MIB, "times": 20}], read_late)
    assert wire.received == 20 * MIB
    assert wire.ended


def test_more_bytes_than_the_budget_are_not_read() -> None:
    async def read_all(server: RawServer, wire: Wire) -> None:
        stream, _ = await connected(server, wire)
        await stream.write(b"GET /case HTTP/1.1\r\n\r\n")
        wire.start_body(1000)
        with pytest.raises(FetchFailed, match="response_too_large"):
            await read_to_the_end(stream, 100)
        await stream.aclose()

    assert against([{"send": "x" * 5000}], read_all).received == 1100


def test_a_write_to_a_closed_connection_sends_nothing() -> None:
    async def write_late(server: RawServer, wire: Wire) -> None:
        stream, _ = await connected(server, wire)
        await stream.aclose()
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"GET / HTTP/1.1\r\n\r\n")

    assert not against([], write_late).request_sent


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 302 Found\r\nLocation: ftp://a.example/\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["redirect", "refusal", "too large by its length", "too large"],
)
def test_a_connection_whose_body_is_not_wanted_is_closed(head: str) -> None:
    async def run(server: RawServer) -> int:
        fetcher = Fetcher(egress=EgressGuard([server.allowed]), user_agent="a", max_connections=1)
        before = sockets()
        await fetcher.fetch(
            FetchRequest(
                url=server.url,
                method="GET",
                headers=(),
                body=b"",
                deadline_seconds=5,
                max_bytes=MIB,
                follow_redirects=True,
            )
        )
        await asyncio.sleep(0.1)
        return sockets() - before

    with RawServer([{"send": head}, {"send": "x" * MIB, "times": 4}, {"sleep": 3}]) as server:
        assert asyncio.run(run(server)) <= 1  # the server's end, in this same process


def sockets() -> int:
    return sum(
        str(link.readlink()).startswith("socket:") for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
    )

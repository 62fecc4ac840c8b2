"""What an attempt has done on the network, and the buffer between a socket and whoever reads from it."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final, cast

from scraper.outcomes import FetchFailed

PAUSE_BYTES: Final = 256 * 1024
"""Unread bytes of one connection that stop the reading from its socket: the memory a slow consumer can cost."""


@dataclass(slots=True)
class Wire:
    """What one attempt did on the network, over all its hops."""

    started: float = field(default_factory=time.perf_counter)
    timings: dict[str, float] = field(default_factory=dict)
    request_sent: bool = False
    received: int = 0
    """Bytes of this hop, headers and framing included."""
    budget: int = 0
    """The most that `received` may reach."""
    ended: bool = False
    """The server closed its side, and that was read: whatever the parser misses now will not come."""
    reading_body: bool = False
    """The final head of this hop's answer is complete."""
    connection: dict[str, str | None] = field(default_factory=dict)
    """This hop's, as evidence.py has it."""

    def start_hop(self, budget: int) -> None:
        self.received = 0
        self.ended = False
        self.reading_body = False
        self.budget = budget
        self.connection = {}

    def start_body(self, budget: int) -> None:
        """Allow `budget` bytes more than have come."""
        self.reading_body = True
        self.budget = self.received + budget

    def add(self, name: str, since: float) -> None:
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - since

    def count(self, size: int) -> None:
        """Note received bytes. Raises FetchFailed when they exceed the budget."""
        if self.received == 0:
            self.timings["first_byte"] = time.perf_counter() - self.started
        self.received += size
        if self.received > self.budget:
            raise self._over_budget()

    def _over_budget(self) -> FetchFailed:
        if self.reading_body:
            return FetchFailed(
                "response_too_large", "The response has far more bytes on the wire than its body may have."
            )
        return FetchFailed("invalid_response", "The response's header section is too long.")


class ReadBuffer(asyncio.Protocol):
    """Keeps what arrives until it is asked for, and stops the socket when that becomes too much."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._reading_paused = False
        self._closed = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._writing_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > PAUSE_BYTES and not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        self._closed = True
        _wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._error = exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        _wake(self._writer)

    @property
    def peer(self) -> str | None:
        """The numeric address at the other end; None when the connection was lost before it could be asked for."""
        name = None if self.transport is None else self.transport.get_extra_info("peername")
        return None if name is None else str(name[0])

    @property
    def tls_version(self) -> str | None:
        """As `TLSv1.3`; None in clear."""
        tls = None if self.transport is None else self.transport.get_extra_info("ssl_object")
        return None if tls is None else tls.version()

    @property
    def alpn_protocol(self) -> str | None:
        """As `h2`; None in clear, or when the server chose none."""
        tls = None if self.transport is None else self.transport.get_extra_info("ssl_object")
        return None if tls is None else tls.selected_alpn_protocol()

    @property
    def holds_data(self) -> bool:
        return bool(self._chunks)

    async def read(self, max_bytes: int, seconds: float) -> bytes:
        """Up to `max_bytes`; empty at the end. Raises TimeoutError after `seconds` of silence, or OSError."""
        if not self._chunks and not self._closed:
            self._reader = asyncio.get_running_loop().create_future()
            await _within(seconds, self._reader)
        if not self._chunks:
            if self._error is not None:
                raise self._error
            return b""
        return self._take(max_bytes)

    def _take(self, max_bytes: int) -> bytes:
        chunk = self._chunks.popleft()
        if len(chunk) > max_bytes:
            self._chunks.appendleft(chunk[max_bytes:])
            chunk = chunk[:max_bytes]
        self._size -= len(chunk)
        if self._reading_paused and self._size < PAUSE_BYTES // 2 and self.transport is not None:
            self._reading_paused = False
            self.transport.resume_reading()
        return chunk

    async def write(self, transport: asyncio.Transport, data: bytes) -> None:
        """Hand `data` to the transport, and wait while it is full. Raises ConnectionError once it is closed."""
        transport.write(data)
        if self._writing_paused:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
            self.open_transport()

    def open_transport(self) -> asyncio.Transport:
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        return self.transport

    def abort(self) -> None:
        """Let go at once: a graceful close would wait for a peer that does not read, or for its close_notify."""
        if self.transport is not None:
            self.transport.abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


async def _within(seconds: float, waiter: asyncio.Future[None]) -> None:
    """Await `waiter` for at most `seconds`; a bare timer, since asyncio.timeout costs more than the read itself."""
    timer = asyncio.get_running_loop().call_later(seconds, _expire, waiter)
    try:
        await waiter
    finally:
        timer.cancel()

"""What of a response's head is judged and kept, and how its body is read."""

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import IO, Final

import httpcore2

from scraper.bodies import BodyWriter, too_large
from scraper.decoding import BodyDecoder
from scraper.outcomes import BodyFile, FetchFailed

MAX_HEADERS: Final = 500
MAX_HEADER_BYTES: Final = 100 * 1024
KEPT_HEADER_BYTES: Final = 32 * 1024
"""Of names and values; what comes after is not in the attempt's record."""
MAX_CONTENT_TYPE: Final = 255
SNIPPET_BYTES: Final = 2048
SNIPPET_SOURCE_BYTES: Final = 1024 * 1024
BEGINNING_SOURCE_BYTES: Final = 64 * 1024 * 1024
"""What a body may decode to of which only the beginning is wanted; the wire's own budget is far smaller."""
SNIPPET_SECONDS: Final = 2.0
"""A refusal is known from its status: its body must not turn it into something slower or worse."""
BUSY_SECONDS: Final = 0.005
"""Spent on a body without giving way to the process's other attempts."""
FREE_BYTES: Final = 512 * 1024
"""Of memory that a decoder's window may take before it is its turn."""
WIRE_MEMORY_BYTES: Final = 256 * 1024
READ_BYTES: Final = 64 * 1024

_VERSIONS: Final = re.compile(r"HTTP/1\.[0-9]|HTTP/2")
"""RFC 9112 2.3, whose parser takes `HTTP/2.0` and `HTTP/0.9` as well; `HTTP/2` is what HTTP/2's own parser says."""

RawHeaders = list[tuple[bytes, bytes]]


class _Enough(Exception):
    """All that is wanted of the body has come."""


class _Way:
    """Given to other attempts, and to this one's deadline, by time: decoding can be work without output."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def give(self) -> None:
        if time.perf_counter() - self._since > BUSY_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class Answer:
    """A response whose head has come. Headers are checked on construction: FetchFailed (invalid_response).

    `turn` is held by the one body of the process whose decoder may have a large window.
    """

    def __init__(self, response: httpcore2.Response, method: str, turn: asyncio.Lock) -> None:
        self._turn = turn
        self.status = response.status
        self._response = response
        self._raw: RawHeaders = response.headers
        self._has_body = method != "HEAD" and response.status not in (204, 304)
        self._check()

    def _check(self) -> None:
        if not _VERSIONS.fullmatch(self.http_version):
            raise FetchFailed("invalid_response", "The response is of another version of HTTP than was asked for.")
        if self.status == 101:
            raise FetchFailed("invalid_response", "The server switched to another protocol, which was not asked for.")
        size = sum(len(name) + len(value) for name, value in self._raw)
        if len(self._raw) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise FetchFailed("invalid_response", "The response's header section is too long.")

    @property
    def http_version(self) -> str:
        """As `HTTP/1.1`."""
        return str(self._response.extensions["http_version"], "ascii")

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header, `name` in lower case."""
        return [value for raw, value in self._raw if raw.lower() == name]

    def first(self, name: bytes) -> str | None:
        values = self.values(name)
        return values[0].decode("latin-1") if values else None

    def kept_headers(self) -> list[tuple[str, str]]:
        kept = []
        size = 0
        for name, value in self._raw:
            size += len(name) + len(value)
            if size > KEPT_HEADER_BYTES:
                break
            kept.append((name.decode("latin-1"), value.decode("latin-1")))
        return kept

    async def read_body(self, max_bytes: int, directory: str | None) -> BodyFile:
        """The whole body, decoded. Raises FetchFailed; nothing of a body that failed stays behind."""
        self._check_length(max_bytes)
        writer = BodyWriter(max_bytes, directory)
        try:
            await self._pour(writer.write, max_bytes, directory)
        except BaseException:
            writer.discard()
            raise
        return writer.finish()

    async def read_snippet(self) -> str:
        """The beginning of the body as text that JSON and PostgreSQL take, whatever is wrong with the body."""
        snippet = bytearray()

        def take(piece: bytes) -> None:
            snippet.extend(piece)
            if len(snippet) >= SNIPPET_BYTES:
                raise _Enough

        with contextlib.suppress(_Enough, FetchFailed, httpcore2.ProtocolError, TimeoutError):
            async with asyncio.timeout(SNIPPET_SECONDS):
                await self._pour(take, SNIPPET_SOURCE_BYTES)
        return snippet[:SNIPPET_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd")

    async def read_beginning(self, size: int) -> tuple[bytes, bool]:
        """The first `size` bytes of the decoded body, and whether that is all of it. Raises FetchFailed."""
        beginning = bytearray()

        def take(piece: bytes) -> None:
            beginning.extend(piece)
            if len(beginning) > size:
                raise _Enough

        try:
            await self._pour(take, BEGINNING_SOURCE_BYTES)
        except _Enough:
            return bytes(beginning[:size]), False
        return bytes(beginning), True

    def _check_length(self, max_bytes: int) -> None:
        """Refuse a body that says itself that it is too long, before a byte of it is read."""
        if not self._has_body or self.values(b"transfer-encoding"):
            return
        length = self.values(b"content-length")
        if length and int(length[0]) > max_bytes:
            raise too_large(max_bytes)

    async def _pour(self, take: Callable[[bytes], None], max_bytes: int, directory: str | None = None) -> None:
        """Give each decoded piece to `take`; `max_bytes` caps the wire's bytes and what each decoding makes of them."""
        decoder = self._decoder(max_bytes)
        if decoder is not None and decoder.needs_window:
            await self._pour_at_rest(take, max_bytes, decoder, directory)
            return
        way = _Way()
        async for chunk in self._counted(max_bytes):
            for piece in (chunk,) if decoder is None else decoder.feed(chunk):
                take(piece)
                await way.give()
        for piece in () if decoder is None else decoder.finish():
            take(piece)
            await way.give()

    async def _pour_at_rest(
        self, take: Callable[[bytes], None], max_bytes: int, decoder: BodyDecoder, directory: str | None
    ) -> None:
        """`_pour` for the codings whose decoders keep megabytes (br: 16 MiB, zstd: 8): twenty at once would keep 320.

        The whole body comes first, so that a slow server holds up nobody's turn.
        """
        way = _Way()
        with tempfile.SpooledTemporaryFile(max_size=WIRE_MEMORY_BYTES, dir=directory) as wire:
            async for chunk in self._counted(max_bytes):
                wire.write(chunk)
                await way.give()
            wire.seek(0)
            async with contextlib.AsyncExitStack() as held:
                pieces = decoder.decode(_read_in_pieces(wire))
                piece: bytes | None = b""
                has_turn = False
                while piece is not None:
                    if not has_turn and decoder.window > FREE_BYTES:
                        await held.enter_async_context(self._turn)
                        has_turn = True
                    take(piece)
                    await way.give()
                    piece = next(pieces, None)

    async def _counted(self, max_bytes: int) -> AsyncIterator[bytes]:
        received = 0
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                received += len(chunk)
                if received > max_bytes:
                    raise too_large(max_bytes)
                yield chunk

    def _chunks(self) -> AsyncGenerator[bytes]:
        return self._response.stream.__aiter__()  # type: ignore[union-attr, return-value]

    def _decoder(self, max_bytes: int) -> BodyDecoder | None:
        """None for a body that is taken as it comes: no coding, or a part (206) of an encoded one."""
        codings = ",".join(value.decode("latin-1") for value in self.values(b"content-encoding"))
        if not codings or self.status == 206:
            return None
        return BodyDecoder(codings, max_bytes)


def _read_in_pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(READ_BYTES):
        yield piece

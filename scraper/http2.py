"""One request over HTTP/2, when the server chose it in the TLS handshake (ALPN `h2`, RFC 9113)."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Final, cast

import h2.config
import h11
import httpcore2

from scraper.outcomes import FetchFailed

ALPN: Final = "h2"
_OF_THE_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection"})
"""RFC 9113 8.2.2: not sent in HTTP/2."""


FREE_PIECES: Final = 1000
SMALL_PIECE: Final = 64
"""Bytes that the pieces of a body must have on the average, after the first ones. Each costs a tenth of a millisecond,
whatever is in it, so that a megabyte of empty ones would hold up the process's other attempts for many seconds."""


class Http2Connection(httpcore2.AsyncHTTP2Connection):
    """Unlike httpcore2's own it checks what the server sends: a response without a status would count as a 200."""

    CONFIG = h2.config.H2Configuration(validate_inbound_headers=True)


async def request_http2(order: httpcore2.Request, stream: httpcore2.AsyncNetworkStream) -> httpcore2.Response:
    """Send `order` as the only request of `stream`. Raises FetchFailed, or what `http2_errors` knows."""
    try:
        h11.Request(method=order.method, target=order.url.target, headers=order.headers)
    except h11.LocalProtocolError:
        raise FetchFailed("invalid_request", "The job has a method or header that HTTP cannot carry.") from None
    order.headers = [header for header in order.headers if header[0].lower() not in _OF_THE_CONNECTION]
    try:
        response = await Http2Connection(order.url.origin, stream).handle_async_request(order)
    except ValueError:  # a status that is no number
        raise FetchFailed("invalid_response", "The server's response has no status.") from None
    if not 100 <= response.status <= 999:
        raise FetchFailed("invalid_response", "The server's response has no status.")
    response.stream = _Pieces(cast(AsyncIterable[bytes], response.stream))
    return response


class _Pieces:
    """A body whose pieces are counted. Raises FetchFailed (invalid_response) when they are too small."""

    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        pieces = size = 0
        async with contextlib.aclosing(cast(AsyncGenerator[bytes], self._stream.__aiter__())) as stream:
            async for piece in stream:
                pieces += 1
                size += len(piece)
                if pieces > FREE_PIECES + size // SMALL_PIECE:
                    raise FetchFailed("invalid_response", "The server sends its body in pieces that are too small.")
                yield piece

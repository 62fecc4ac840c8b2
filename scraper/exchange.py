"""One request and its answer, on a connection of its own: direct or through a proxy, HTTP/1.1 or HTTP/2."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Final

import httpcore2

from core.proxies import Proxy
from scraper.answers import Answer
from scraper.egress import EgressGuard
from scraper.http2 import ALPN, request_http2
from scraper.network import GuardedBackend, GuardedStream
from scraper.outcomes import FetchFailed
from scraper.protocol import http2_errors, protocol_errors
from scraper.proxying import connect_through, is_forwarded, proxy_authorization, refused_credentials
from scraper.redirects import Hop
from scraper.wire import Wire

HEAD_BYTES: Final = 256 * 1024
"""Of one hop's wire before its final head is complete, interim (1xx) answers included."""


class Exchange:
    """Sends requests; one object per process. Holds nothing between them.

    `connect_seconds` bounds lookup and connecting together, and the TLS handshake again; `silence_seconds` each wait
    for more bytes. With `http2` a server may choose it. `proxy_ssl_context` is for TLS to a proxy, as `ssl_context` is
    to a target.
    """

    def __init__(
        self,
        egress: EgressGuard,
        *,
        connect_seconds: float,
        silence_seconds: float,
        http2: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        proxy_ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._egress = egress
        self._window_turn = asyncio.Lock()
        self._connect_seconds = connect_seconds
        self._silence_seconds = silence_seconds
        self._ssl_context = ssl_context or httpcore2.default_ssl_context()
        self._ssl_context.set_alpn_protocols([ALPN, "http/1.1"] if http2 else ["http/1.1"])
        self._proxy_ssl_context = self._ssl_context
        if http2:  # CONNECT is spoken over HTTP/1.1 alone
            self._proxy_ssl_context = proxy_ssl_context or httpcore2.default_ssl_context()
            self._proxy_ssl_context.set_alpn_protocols(["http/1.1"])

    @contextlib.asynccontextmanager
    async def answer(self, hop: Hop, proxy: Proxy | None, wire: Wire) -> AsyncIterator[Answer]:
        """The head that answers the request of `hop`; the connection is gone when the block is left.

        Raises FetchFailed, also inside the block, for what comes of reading the body.
        """
        order = _wire_request(hop, proxy)
        wire.start_hop(HEAD_BYTES)
        stream = await self._connect(hop, proxy, wire)
        try:
            if stream.protocol == ALPN and hop.target.scheme == "https":
                with http2_errors(wire):
                    yield Answer(await request_http2(order, stream), hop.method, self._window_turn)
                return
            with protocol_errors(wire):
                connection = httpcore2.AsyncHTTP11Connection(order.url.origin, stream)
                answer = Answer(await connection.handle_async_request(order), hop.method, self._window_turn)
                if answer.status == 407 and proxy is not None and is_forwarded(proxy, hop.target):
                    raise refused_credentials(proxy.has_credentials)
                yield answer
        finally:
            await stream.aclose()

    async def _connect(self, hop: Hop, proxy: Proxy | None, wire: Wire) -> GuardedStream:
        backend = GuardedBackend(
            self._egress, wire, connect_timeout=self._connect_seconds, read_timeout=self._silence_seconds
        )
        name, port = hop.target.name, hop.target.port
        if proxy is None:
            stream = await backend.connect_tcp(name, port)
        else:
            stream = await connect_through(proxy, hop.target, backend, wire, self._proxy_ssl_context)
            wire.start_hop(HEAD_BYTES)
        if hop.target.scheme == "https":
            await stream.start_tls(self._ssl_context, name)
        return stream


def _wire_request(hop: Hop, proxy: Proxy | None) -> httpcore2.Request:
    """Raises FetchFailed (invalid_request) for a method or header that HTTP cannot carry."""
    target = hop.target
    try:
        headers = [(b"Host", target.authority.encode("ascii"))]
        headers += [(key.encode("ascii"), value.encode("latin-1")) for key, value in hop.headers]
        method = hop.method.encode("ascii")
    except UnicodeEncodeError:
        raise FetchFailed("invalid_request", "The job has a header that HTTP cannot carry.") from None
    if hop.body or method in (b"POST", b"PUT", b"PATCH"):
        headers.append((b"Content-Length", b"%d" % len(hop.body)))
    headers.append((b"Connection", b"close"))
    request_target = target.request_target
    if proxy is not None and is_forwarded(proxy, target):
        request_target = target.url  # the absolute form, RFC 9112 3.2.2
        headers += proxy_authorization(proxy)
    url = httpcore2.URL(
        scheme=target.scheme.encode(), host=target.name.encode(), port=target.port, target=request_target.encode()
    )
    return httpcore2.Request(method, url, headers=headers, content=hop.body)

"""One request over HTTP/2, when the server chose it in the TLS handshake (ALPN `h2`, RFC 9113)."""

from typing import Final

import h2.config
import h11
import httpcore2

from scraper.outcomes import FetchFailed

ALPN: Final = "h2"
_OF_THE_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection"})
"""RFC 9113 8.2.2: not sent in HTTP/2."""


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
    return response

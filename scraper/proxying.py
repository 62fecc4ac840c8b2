"""The way through a proxy. The guard holds for both ends: the target's name is resolved and checked here before the
proxy hears of it, and the proxy is connected to like any other host.

A SOCKS5 proxy is given the checked address, so it connects to nothing else. An HTTP proxy is given the name, as such
proxies expect, and resolves it once more: what it reaches then is up to its own rules.
"""

import base64
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Final

import h11
import httpcore2

from core.proxies import Proxy, bracketed
from jobs.targets import Target
from scraper.network import GuardedBackend, GuardedStream
from scraper.outcomes import FetchFailed
from scraper.wire import Wire

READ_BYTES: Final = 64 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024

# RFC 1928 and 1929
_VERSION, _AUTH_VERSION, _CONNECT = 5, 1, 1
_NO_AUTH, _PASSWORD = 0, 2
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REPLIES: Final = {
    1: ("connection_refused", "could not connect to the target"),
    2: ("blocked_target", "does not let this target through"),
    3: ("connection_refused", "cannot reach the target's network"),
    4: ("connection_refused", "cannot reach the target"),
    5: ("connection_refused", "was refused the connection by the target"),
    6: ("connect_timeout", "was not connected to the target in time"),
    7: ("invalid_response", "makes no TCP connections"),
    8: ("invalid_response", "does not know this kind of address"),
}


class ProxyFailed(FetchFailed):
    """The proxy failed, or said no: nothing is known of the target, and nothing was sent to it."""


def is_forwarded(proxy: Proxy, target: Target) -> bool:
    """Whether the request itself goes to the proxy (RFC 9112 3.2.2), which is so without TLS to the target."""
    return proxy.scheme != "socks5" and target.scheme == "http"


def proxy_authorization(proxy: Proxy) -> list[tuple[bytes, bytes]]:
    """The Proxy-Authorization header, if there are credentials (RFC 7617)."""
    if not proxy.has_credentials:
        return []
    pair = f"{proxy.username}:{proxy.password}".encode()
    return [(b"Proxy-Authorization", b"Basic " + base64.b64encode(pair))]


async def connect_through(
    proxy: Proxy, target: Target, backend: GuardedBackend, wire: Wire, ssl_context: ssl.SSLContext
) -> GuardedStream:
    """A stream to `target` through `proxy`; where the request is forwarded, to the proxy itself.

    Raises FetchFailed for the target's name, ProxyFailed for all else.
    """
    addresses = await backend.resolve(target.name, target.port)
    async with _at_the_proxy(wire):
        stream = await backend.connect_tcp(proxy.name, proxy.port)
        wire.connection.pop("remote_address", None)  # the proxy's is nobody's business
        try:
            if proxy.scheme == "https":
                await stream.start_tls(ssl_context, proxy.name)
                wire.connection.pop("tls_version", None)
            if proxy.scheme == "socks5":
                await _ask_socks5(stream, proxy, _preferred(addresses), target.port)
            elif not is_forwarded(proxy, target):
                await _ask_http(stream, proxy, f"{bracketed(target.name)}:{target.port}".encode())
        except BaseException:
            await stream.aclose()
            raise
    return stream


def refused_credentials(known: bool) -> ProxyFailed:
    """407, or SOCKS5's word for it; `known` when there were any."""
    wanted = "does not accept these credentials" if known else "asks for credentials"
    return ProxyFailed("http_407", f"The proxy {wanted}.")


@contextlib.asynccontextmanager
async def _at_the_proxy(wire: Wire) -> AsyncIterator[None]:
    """What fails here failed at the proxy, and what is sent here does not count as sent to the target."""
    sent_before = wire.request_sent
    try:
        yield
    except ProxyFailed:
        raise
    except FetchFailed as failure:
        raise ProxyFailed(failure.code, f"At the proxy: {failure.detail}") from None
    except httpcore2.WriteError:
        raise ProxyFailed("connection_reset", "The proxy broke the connection.") from None
    finally:
        wire.request_sent = sent_before


async def _ask_http(stream: GuardedStream, proxy: Proxy, place: bytes) -> None:
    """Have the proxy connect `stream` to `place` (CONNECT, RFC 9110 9.3.6)."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    headers = [(b"Host", place), *proxy_authorization(proxy)]
    await stream.write(parser.send(h11.Request(method=b"CONNECT", target=place, headers=headers)) or b"")
    parser.send(h11.EndOfMessage())
    status = await _status(stream, parser)
    if status == 407:
        raise refused_credentials(proxy.has_credentials)
    if not 200 <= status < 300:
        raise ProxyFailed(f"http_{status}", f"The proxy answered CONNECT with status {status}.")
    if parser.trailing_data[0]:  # nothing of it may be taken for the target's
        raise ProxyFailed("invalid_response", "The proxy sent more than its answer to CONNECT.")


async def _status(stream: GuardedStream, parser: h11.Connection) -> int:
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError:
            raise ProxyFailed("invalid_response", "The proxy's answer to CONNECT is not valid HTTP.") from None
        if isinstance(event, h11.Response):
            return event.status_code
        if event is h11.NEED_DATA:
            data = await stream.read(READ_BYTES)
            if not data:
                raise ProxyFailed("server_disconnected", "The proxy closed without an answer to CONNECT.")
            parser.receive_data(data)


def _preferred(addresses: Sequence[str]) -> str:
    """IPv4 where there is one: which kinds of address the proxy itself can reach is not known."""
    return next((address for address in addresses if ":" not in address), addresses[0])


async def _ask_socks5(stream: GuardedStream, proxy: Proxy, address: str, port: int) -> None:
    """Have the proxy connect `stream` to this very address (RFC 1928)."""
    await _authenticate(stream, proxy)
    packed = ipaddress.ip_address(address).packed
    kind = _IPV4 if len(packed) == 4 else _IPV6
    await stream.write(bytes([_VERSION, _CONNECT, 0, kind]) + packed + port.to_bytes(2, "big"))
    version, reply, _, kind = await _exactly(stream, 4)
    if version != _VERSION:
        raise _no_socks5()
    if reply:
        code, what = _REPLIES.get(reply, ("invalid_response", f"answered with the unknown code {reply}"))
        raise ProxyFailed(code, f"The proxy {what} (SOCKS5).")
    sizes = {_IPV4: 4, _IPV6: 16}
    size = (await _exactly(stream, 1))[0] if kind == _NAME else sizes.get(kind)
    if size is None:
        raise _no_socks5()
    await _exactly(stream, size + 2)


async def _authenticate(stream: GuardedStream, proxy: Proxy) -> None:
    methods = bytes([_NO_AUTH, _PASSWORD] if proxy.has_credentials else [_NO_AUTH])
    await stream.write(bytes([_VERSION, len(methods)]) + methods)
    version, method = await _exactly(stream, 2)
    if version != _VERSION:
        raise _no_socks5()
    if method not in methods:
        raise refused_credentials(proxy.has_credentials)
    if method == _NO_AUTH:
        return
    username, password = proxy.username.encode(), proxy.password.encode()
    await stream.write(bytes([_AUTH_VERSION, len(username)]) + username + bytes([len(password)]) + password)
    _, status = await _exactly(stream, 2)
    if status:
        raise refused_credentials(known=True)


async def _exactly(stream: GuardedStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await stream.read(size - len(data))
        if not piece:
            raise ProxyFailed("server_disconnected", "The proxy closed in the middle of its answer (SOCKS5).")
        data += piece
    return data


def _no_socks5() -> ProxyFailed:
    return ProxyFailed("invalid_response", "The proxy does not speak SOCKS5.")

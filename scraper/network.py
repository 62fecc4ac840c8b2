"""The wire: httpcore2's hook for opening connections, on asyncio's transports, through the egress guard.

httpcore2's own stream (anyio) is not used: it costs three times the CPU a read, and hides whether a connection ended
or broke, which is what tells a truncated body from a bad one.
"""

import asyncio
import errno
import ssl
import time
from collections.abc import Iterable
from typing import Any, Final, cast

import httpcore2

from scraper.egress import EgressGuard
from scraper.evidence import told_address
from scraper.outcomes import FetchFailed
from scraper.wire import ReadBuffer, Wire

FALLBACK_SECONDS: Final = 1.0
"""How long an address may take to connect while another one of the same name is left to try."""
MAX_ADDRESSES: Final = 6

_TLS_DETAILS: Final = {
    9: "The server's certificate is not valid yet.",
    10: "The server's certificate has expired.",
    18: "The server's certificate is self-signed.",
    19: "The server's certificate is signed by an authority that is not trusted.",
    20: "The server's certificate is signed by an authority that is not trusted.",
    62: "The server's certificate is for another host.",
    64: "The server's certificate is for another address.",
}
"""OpenSSL's X509_V_ERR_* to what the tenant reads."""

_TLS_TOO_OLD: Final = frozenset(
    {
        "DH_KEY_TOO_SMALL",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSAFE_LEGACY_RENEGOTIATION_DISABLED",
        "UNSUPPORTED_PROTOCOL",
    }
)
"""OpenSSL's reasons that no other attempt will change: the server has nothing but TLS before 1.2, or its weaknesses."""


class GuardedStream(httpcore2.AsyncNetworkStream):
    """One connection's bytes, counted on its attempt's Wire. httpcore2's `timeout` arguments are never set here."""

    def __init__(self, buffer: ReadBuffer, wire: Wire, *, connect_timeout: float, read_timeout: float) -> None:
        self._buffer = buffer
        self._wire = wire
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Raises FetchFailed: read_timeout, connection_reset, or what the wire's budget says."""
        try:
            data = await self._buffer.read(max_bytes, self._read_timeout)
        except TimeoutError:
            raise FetchFailed("read_timeout", "The server sent nothing for too long.") from None
        except OSError:  # ssl.SSLError is one
            raise FetchFailed("connection_reset", "The connection broke before the response was complete.") from None
        if data:
            self._wire.count(len(data))
        else:
            self._wire.ended = True
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if not buffer:
            return
        try:
            transport = self._buffer.open_transport()
            self._wire.request_sent = True
            await self._buffer.write(transport, buffer)
        except OSError as error:
            # httpcore2 goes on to read after this one: a server may answer, say, 413 and close before it has read all.
            raise httpcore2.WriteError from error

    async def aclose(self) -> None:
        self._buffer.abort()

    @property
    def protocol(self) -> str | None:
        """What the server chose in the TLS handshake (ALPN, RFC 7301), as `h2`; None when it chose nothing."""
        return self._buffer.alpn_protocol

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        """Raises FetchFailed: tls_error for a certificate that is not valid or TLS before 1.2, else
        tls_handshake_failed."""
        started = time.perf_counter()
        try:
            await self._handshake(ssl_context, server_hostname)
        except BaseException as error:
            self._buffer.abort()
            if isinstance(error, OSError):
                raise tls_failure(error) from None
            raise
        self._wire.add("tls", started)
        self._wire.connection["tls_version"] = self._buffer.tls_version
        return self

    async def _handshake(self, ssl_context: ssl.SSLContext, server_hostname: str | None) -> None:
        buffer = self._buffer
        if (
            buffer.transport is None or buffer.holds_data
        ):  # bytes sent in clear must never be read as if they came by TLS
            raise ConnectionResetError("the server spoke before the handshake")
        inside = cast(asyncio.Transport, TlsCarrier(buffer.transport)) if buffer.tls_version else buffer.transport
        buffer.transport = await asyncio.get_running_loop().start_tls(
            inside,
            buffer,
            ssl_context,
            server_hostname=server_hostname,
            ssl_handshake_timeout=self._connect_timeout,
        )
        if buffer.transport is None:
            raise ConnectionResetError("the connection was lost during the handshake")


class TlsCarrier:
    """A TLS connection that another one runs inside: that of a proxy, and a target's.

    When the inner handshake fails, asyncio calls what the outer transport of Python 3.11 cannot do, and the failure is
    lost; the attempt would only end with its deadline.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _force_close(self, error: BaseException | None) -> None:
        self._transport.abort()


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves once, checks every address, connects to a checked one. One object per hop of an attempt."""

    def __init__(self, guard: EgressGuard, wire: Wire, *, connect_timeout: float, read_timeout: float) -> None:
        self._guard = guard
        self._wire = wire
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> GuardedStream:
        """Raises FetchFailed: blocked_target, dns_error, connect_timeout, connection_refused, connection_reset."""
        until = asyncio.get_running_loop().time() + self._connect_timeout
        addresses = await self._resolve(host, port, until)
        started = time.perf_counter()
        buffer = await self._connect(addresses[:MAX_ADDRESSES], port, until)
        self._wire.add("connect", started)
        self._wire.connection["remote_address"] = told_address(buffer.peer, host)
        return GuardedStream(buffer, self._wire, connect_timeout=self._connect_timeout, read_timeout=self._read_timeout)

    async def resolve(self, host: str, port: int) -> list[str]:
        """The checked addresses of a host that somebody else is to connect to. Raises FetchFailed: blocked_target,
        dns_error."""
        return await self._resolve(host, port, asyncio.get_running_loop().time() + self._connect_timeout)

    async def _resolve(self, host: str, port: int, until: float) -> list[str]:
        started = time.perf_counter()
        try:
            async with asyncio.timeout_at(until):
                addresses = await self._guard.resolve(host, port)
        except TimeoutError:
            raise FetchFailed("dns_error", "The host's name was not resolved in time.") from None
        except (OSError, UnicodeError):  # UnicodeError: the resolver's own IDNA step refuses the name
            raise FetchFailed("dns_error", "The host's name could not be resolved.") from None
        self._wire.add("dns", started)
        return list(addresses)

    async def _connect(self, addresses: list[str], port: int, until: float) -> ReadBuffer:
        """Try the addresses in order; each but the last gets FALLBACK_SECONDS. The last one's error counts."""
        *earlier, last = addresses
        for address in earlier:
            try:
                async with asyncio.timeout_at(min(until, asyncio.get_running_loop().time() + FALLBACK_SECONDS)):
                    return await _open(address, port)
            except OSError:  # TimeoutError is one
                continue
        try:
            async with asyncio.timeout_at(until):
                return await _open(last, port)
        except OSError as error:
            raise connect_failure(error) from None


async def _open(address: str, port: int) -> ReadBuffer:
    _, buffer = await asyncio.get_running_loop().create_connection(ReadBuffer, address, port)
    return buffer


def connect_failure(error: OSError) -> FetchFailed | OSError:
    """What a failed connect means; an error of this machine (no free port, no descriptor) is returned as it is."""
    if isinstance(error, TimeoutError):
        return FetchFailed("connect_timeout", "The connection was not made in time.")
    if isinstance(error, ConnectionRefusedError):
        return FetchFailed("connection_refused", "The server refused the connection.")
    if isinstance(error, ConnectionError):
        return FetchFailed("connection_reset", "The connection broke while it was being made.")
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES, errno.EPERM, errno.EINVAL):
        return FetchFailed("connection_refused", "The server cannot be reached.")
    return error


def tls_failure(error: OSError) -> FetchFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        return FetchFailed("tls_error", _TLS_DETAILS.get(error.verify_code, "The server's certificate is not valid."))
    if isinstance(error, ssl.SSLError) and error.reason in _TLS_TOO_OLD:
        return FetchFailed("tls_error", "The server's TLS is too old to be safe.")
    return FetchFailed("tls_handshake_failed", "The TLS handshake with the server failed.")

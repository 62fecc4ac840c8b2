"""TLS against a real server with self-made certificates: whom the fetcher trusts, and how it says no."""

import asyncio
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.network import GuardedBackend, GuardedStream
from scraper.outcomes import FetchFailed, FetchOutcome, FetchRequest
from scraper.wire import Wire
from tests.scraper.fetch_kin import HELLO, redirect
from tests.scraper.raw_server import RawServer
from tests.scraper.test_egress import answering

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()
FUTURE = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


OLD_SERVER_HELLO = bytes.fromhex("16030100 2a 02 000026 0301".replace(" ", "")) + bytes(32) + bytes.fromhex("00002f00")
"""TLS 1.0 with TLS_RSA_WITH_AES_128_CBC_SHA (RFC 2246 7.4.1.3)."""


def server_context(certificate: trustme.LeafCert, **limits: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    for name, value in limits.items():
        setattr(context, name, value)
    return context


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def fetch(url: str, *allow: str, resolver: Any = None, connect_seconds: float = 3) -> FetchOutcome:
    async def run() -> FetchOutcome:
        fetcher = Fetcher(
            egress=EgressGuard(allow, resolver),
            user_agent="a",
            max_connections=1,
            ssl_context=trusting(),
            connect_seconds=connect_seconds,
        )
        request = FetchRequest(
            url=url, method="GET", headers=(), body=b"", deadline_seconds=10, max_bytes=1000, follow_redirects=True
        )
        return await fetcher.fetch(request)

    return asyncio.run(run())


def test_a_valid_certificate_is_trusted_and_timed() -> None:
    with RawServer([{"send": HELLO}], context=server_context(AUTHORITY.issue_cert("127.0.0.1"))) as server:
        outcome = fetch(server.url, server.allowed)
    assert outcome.error_code is None
    assert outcome.body is not None
    with outcome.body as body:
        assert body.file.read() == b"hello"
    assert outcome.timings["tls"] > 0
    assert outcome.evidence["connection"] == {
        "remote_address": "127.0.0.1",
        "http_version": "HTTP/1.1",
        "tls_version": "TLSv1.3",
    }


def test_the_tls_version_that_was_agreed_on_is_recorded() -> None:
    context = server_context(AUTHORITY.issue_cert("127.0.0.1"), maximum_version=ssl.TLSVersion.TLSv1_2)
    with RawServer([{"send": HELLO}], context=context) as server:
        outcome = fetch(server.url, server.allowed)
    assert outcome.evidence["connection"]["tls_version"] == "TLSv1.2"


@pytest.mark.parametrize("name", ["name.example", "name.example."])
def test_the_name_is_checked_though_the_address_is_connected_to(name: str) -> None:
    with RawServer([{"send": HELLO}], context=server_context(AUTHORITY.issue_cert("name.example"))) as server:
        outcome = fetch(f"https://{name}:{server.port}/case", server.allowed, resolver=answering("127.0.0.1"))
    assert outcome.error_code is None
    assert f"Host: {name}:{server.port}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize(
    ("certificate", "detail"),
    [
        (AUTHORITY.issue_cert("127.0.0.1", not_before=PAST, not_after=PAST.replace(year=2021)), "expired"),
        (AUTHORITY.issue_cert("127.0.0.1", not_before=FUTURE, not_after=FUTURE.replace(year=2101)), "not valid yet"),
        (AUTHORITY.issue_cert("10.0.0.1"), "another address"),
        (AUTHORITY.issue_cert("name.example"), "another"),
        (STRANGER.issue_cert("127.0.0.1"), "not trusted"),
    ],
    ids=["expired", "not yet", "wrong address", "name only", "unknown authority"],
)
def test_a_certificate_that_is_not_valid_is_a_permanent_error(certificate: trustme.LeafCert, detail: str) -> None:
    with RawServer([{"send": HELLO}], context=server_context(certificate)) as server:
        outcome = fetch(server.url, server.allowed)
    assert outcome.error_code == "tls_error"
    assert detail in outcome.error_detail
    assert not outcome.request_sent
    assert server.requests == []


def test_a_certificate_for_another_name_is_refused() -> None:
    with RawServer([{"send": HELLO}], context=server_context(AUTHORITY.issue_cert("other.example"))) as server:
        outcome = fetch(f"https://name.example:{server.port}/", server.allowed, resolver=answering("127.0.0.1"))
    assert (outcome.error_code, outcome.error_detail) == ("tls_error", "The server's certificate is for another host.")


def test_a_self_signed_certificate_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = STRANGER.cert_pem.bytes() + STRANGER.private_key_pem.bytes()
    with trustme.Blob(pair).tempfile() as path:
        context.load_cert_chain(path)
    with RawServer([{"send": HELLO}], context=context) as server:
        outcome = fetch(server.url, server.allowed)
    assert outcome.error_code == "tls_error"
    assert "self-signed" in outcome.error_detail


def test_a_server_without_tls_is_a_handshake_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for reply in (HELLO.encode(), b""):
            port = listener.getsockname()[1]
            thread = threading.Thread(target=reply_in_clear, args=(listener, reply))
            thread.start()
            outcome = fetch(f"https://127.0.0.1:{port}/", f"127.0.0.1:{port}")
            thread.join()
            assert (outcome.error_code, outcome.request_sent) == ("tls_handshake_failed", False)


def reply_in_clear(listener: socket.socket, reply: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(reply)


def test_bytes_before_the_handshake_are_never_an_answer() -> None:
    """What a middleman puts in front of the handshake, in clear, must not be read as if it had come by TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=inject, args=(listener, server_context(AUTHORITY.issue_cert("127.0.0.1"))))
        thread.start()
        outcome = fetch(f"https://127.0.0.1:{port}/", f"127.0.0.1:{port}")
        thread.join()
    assert outcome.error_code == "tls_handshake_failed"


def inject(listener: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(HELLO.encode())
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            return


def test_bytes_held_from_before_the_handshake_stop_it() -> None:
    """The same with a server that is otherwise in order, and the bytes already read off the socket."""

    async def shake_hands(server: RawServer) -> None:
        backend = GuardedBackend(EgressGuard([server.allowed]), Wire(), connect_timeout=2, read_timeout=2)
        stream = await backend.connect_tcp("127.0.0.1", server.port)
        assert isinstance(stream, GuardedStream)
        stream._buffer.data_received(HELLO.encode())
        with pytest.raises(FetchFailed, match="tls_handshake_failed"):
            await stream.start_tls(trusting(), "127.0.0.1")

    with RawServer([], context=server_context(AUTHORITY.issue_cert("127.0.0.1"))) as server:
        asyncio.run(shake_hands(server))


def test_a_handshake_that_never_ends_is_cut_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        outcome = fetch(f"https://127.0.0.1:{port}/", f"127.0.0.1:{port}", connect_seconds=0.3)
    assert outcome.error_code == "tls_handshake_failed"
    assert outcome.timings["total"] < 3


@pytest.fixture
def old_server() -> Iterator[RawServer]:
    context = server_context(AUTHORITY.issue_cert("127.0.0.1"))
    context.set_ciphers("AES128-SHA")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with RawServer([{"send": HELLO}], context=context) as server:
        yield server


def test_no_common_cipher_is_a_handshake_failure(old_server: RawServer) -> None:
    assert fetch(old_server.url, old_server.allowed).error_code == "tls_handshake_failed"


def test_a_server_with_tls_before_1_2_alone_is_a_permanent_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=reply_in_clear, args=(listener, OLD_SERVER_HELLO))
        thread.start()
        outcome = fetch(f"https://127.0.0.1:{port}/", f"127.0.0.1:{port}")
        thread.join()
    assert (outcome.error_code, outcome.error_detail) == ("tls_error", "The server's TLS is too old to be safe.")
    assert not outcome.request_sent


def test_a_server_that_knows_no_tls_of_ours_says_so_by_an_alert() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        reply = bytes.fromhex("15030100020246")  # fatal, 70: protocol_version
        thread = threading.Thread(target=reply_in_clear, args=(listener, reply))
        thread.start()
        outcome = fetch(f"https://127.0.0.1:{port}/", f"127.0.0.1:{port}")
        thread.join()
    assert outcome.error_code == "tls_error"


def test_a_redirect_to_an_invalid_certificate_is_not_followed() -> None:
    context = server_context(STRANGER.issue_cert("127.0.0.1"))
    with RawServer([{"send": HELLO}], context=context) as inner, RawServer([{"send": redirect(inner.url)}]) as outer:
        outcome = fetch(outer.url, outer.allowed, inner.allowed)
    assert outcome.error_code == "tls_error"
    assert outcome.redirects == [{"url": outer.url, "status": 302}]
    assert inner.requests == []

"""Through a proxy: what is sent to whom, that the guard holds for both ends, and whose fault an error is."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import trustme

from core.proxies import parse_proxy
from jobs.error_codes import is_known, is_temporary
from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchOutcome, FetchRequest
from tests.scraper.fetch_kin import HELLO, redirect
from tests.scraper.proxy_server import ProxyServer
from tests.scraper.raw_server import RawServer
from tests.scraper.test_egress import Answers, answering
from tests.scraper.test_fetcher import free_port, open_descriptors, sent_headers, stored
from tests.scraper.test_tls import AUTHORITY, STRANGER, server_context, trusting

SCHEMES = ("http", "https", "socks5")


def fetch(url: str, proxy: str, allow: Sequence[str], *, resolver: Any = None, **more: Any) -> FetchOutcome:
    values = {"method": "GET", "headers": (), "body": b"", "deadline_seconds": 5, "max_bytes": 1_000_000, **more}
    request = FetchRequest(url=url, proxy=parse_proxy(proxy), **{"follow_redirects": True, **values})

    async def run() -> FetchOutcome:
        guard = EgressGuard(allow, resolver)
        fetcher = Fetcher(egress=guard, user_agent="a", max_connections=1, ssl_context=trusting(), connect_seconds=1)
        return await fetcher.fetch(request)

    return asyncio.run(run())


def proxy_server(scheme: str, **more: Any) -> ProxyServer:
    if scheme == "https":
        more["context"] = server_context(AUTHORITY.issue_cert("127.0.0.1"))
    return ProxyServer(scheme, **more)


@contextlib.contextmanager
def target(tls: bool, steps: Sequence[Any] = ({"send": HELLO},), name: str = "127.0.0.1") -> Iterator[RawServer]:
    context = server_context(AUTHORITY.issue_cert(name)) if tls else None
    with RawServer(steps, context=context) as server:
        yield server


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tls", [False, True])
def test_each_kind_of_proxy_leads_to_each_kind_of_target(scheme: str, tls: bool) -> None:
    with (
        target(tls) as server,
        proxy_server(scheme, credentials=("us:er" if scheme == "socks5" else "user", "p:w")) as proxy,
    ):
        userinfo = "us%3Aer:p%3Aw@" if scheme == "socks5" else "user:p%3Aw@"
        outcome = fetch(server.url, proxy.url(userinfo), [server.allowed, proxy.allowed])
        assert stored(outcome) == b"hello"
        assert proxy.asked == [server.allowed]
        assert (server.connections, proxy.connections) == (1, 1)
    assert outcome.request_sent
    assert outcome.evidence["connection"].get("remote_address") is None
    assert outcome.evidence["connection"].get("tls_version") == ("TLSv1.3" if tls else None)
    assert sent_headers(server.requests[0])["host"] == server.allowed
    assert b"roxy" not in server.requests[0]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_without_tls_to_the_target_the_request_itself_goes_to_the_proxy(scheme: str) -> None:
    with target(tls=False) as server, proxy_server(scheme) as proxy:
        fetch(server.url + "?a=b", proxy.url(), [server.allowed, proxy.allowed])
    assert proxy.heads[0].startswith(f"GET {server.url}?a=b HTTP/1.1\r\n".encode())


def test_a_tunnel_is_asked_for_with_credentials_and_nothing_of_the_job() -> None:
    headers = (("Authorization", "secret"), ("Cookie", "secret=1"))
    with target(tls=True) as server, proxy_server("http") as proxy:
        fetch(server.url, proxy.url("user:pass@"), [server.allowed, proxy.allowed], headers=headers)
    assert proxy.heads == [
        f"CONNECT {server.allowed} HTTP/1.1\r\nHost: {server.allowed}\r\n"
        "Proxy-Authorization: Basic dXNlcjpwYXNz".encode()
    ]


def test_a_socks5_proxy_is_told_the_checked_address_and_a_name_is_still_sent_as_host() -> None:
    with target(tls=True, name="name.example") as server, proxy_server("socks5") as proxy:
        resolver = answering("127.0.0.1")
        url = f"https://name.example:{server.port}/case"
        assert stored(fetch(url, proxy.url(), [server.allowed, proxy.allowed], resolver=resolver)) == b"hello"
        assert proxy.asked == [server.allowed]
    assert sent_headers(server.requests[0])["host"] == f"name.example:{server.port}"


def test_a_socks5_proxy_is_asked_for_ipv4_where_there_is_one() -> None:
    with target(tls=False) as server, proxy_server("socks5") as proxy:
        resolver = answering("::1", "127.0.0.1")
        url = f"http://name.example:{server.port}/case"
        allow = [server.allowed, f"[::1]:{server.port}", proxy.allowed]
        assert stored(fetch(url, proxy.url(), allow, resolver=resolver)) == b"hello"


def test_an_http_proxy_is_told_the_name() -> None:
    with (
        target(tls=True, name="name.example") as server,
        proxy_server("http", names={"name.example": "127.0.0.1"}) as proxy,
    ):
        url = f"https://name.example:{server.port}/case"
        outcome = fetch(url, proxy.url(), [server.allowed, proxy.allowed], resolver=answering("127.0.0.1"))
        assert stored(outcome) == b"hello"
        assert proxy.asked == [f"name.example:{server.port}"]


BLOCKED = "http://127.0.0.1:{port}/ https://127.0.0.1:{port}/ http://[::1]:{port}/ http://localhost:{port}/"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("url", [*BLOCKED.split(), "http://inside.example:80/", "https://inside.example/"])
def test_a_proxy_is_no_way_in(scheme: str, url: str) -> None:
    """Neither directly nor by a redirect: the proxy does not hear of a target that the guard refuses."""
    with proxy_server(scheme) as proxy, RawServer([{"send": HELLO}]) as inside:
        place = url.format(port=inside.port)
        outcome = fetch(place, proxy.url(), [proxy.allowed], resolver=answering("10.0.0.1"))
        assert (outcome.error_code, outcome.request_sent) == ("blocked_target", False)
        assert "proxy" not in outcome.error_detail
        with RawServer([{"send": redirect(place)}]) as outer:
            redirected = fetch(outer.url, proxy.url(), [proxy.allowed, outer.allowed], resolver=answering("10.0.0.1"))
            assert redirected.error_code == "blocked_target"
            assert proxy.asked == [outer.allowed]
        assert inside.connections == 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "inside.example"])
def test_a_proxy_inside_is_not_connected_to(scheme: str, host: str) -> None:
    with target(tls=False) as server, proxy_server(scheme) as proxy:
        resolver = Answers([["127.0.0.1"]])
        outcome = fetch(server.url, f"{scheme}://{host}:{proxy.port}", [server.allowed], resolver=resolver)
        assert (outcome.error_code, proxy.connections, server.connections) == ("blocked_target", 0, 0)
    assert outcome.error_detail.startswith("At the proxy: ")
    assert "127.0.0.1" not in outcome.error_detail


def test_a_proxy_on_a_closed_port_is_refused_unasked() -> None:
    resolver = answering("1.1.1.1")
    outcome = fetch("http://a.example/", "http://proxy.example:25", [], resolver=resolver)
    assert outcome.error_code == "blocked_target"
    assert resolver.calls == 1  # for the target


def test_every_hop_goes_through_the_proxy() -> None:
    with (
        target(tls=True) as last,
        target(tls=False, steps=[{"send": redirect(last.url)}]) as first,
        proxy_server("http") as proxy,
    ):
        outcome = fetch(first.url, proxy.url(), [first.allowed, last.allowed, proxy.allowed])
        assert stored(outcome) == b"hello"
        assert proxy.asked == [first.allowed, last.allowed]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("userinfo", ["", "user:wrong@"])
def test_refused_credentials_are_a_permanent_error_of_the_proxy(scheme: str, tls: bool, userinfo: str) -> None:
    with target(tls) as server, proxy_server(scheme, credentials=("user", "pass")) as proxy:
        outcome = fetch(server.url, proxy.url(userinfo), [server.allowed, proxy.allowed])
        assert server.connections == 0
    assert (outcome.error_code, outcome.http_status, outcome.body_snippet) == ("http_407", None, "")
    assert not is_temporary("http_407")
    assert outcome.error_detail.startswith("The proxy ")
    assert "wrong" not in outcome.error_detail


CONNECT_ANSWERS = [
    (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "http_403"),
    (b"HTTP/1.1 502 Bad\r\n\r\nlong story", "http_502"),
    (b"HTTP/1.1 503 Busy\r\nRetry-After: 1000\r\n\r\n", "http_503"),
    (b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1/\r\n\r\n", "http_301"),
    (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlies!", "invalid_response"),
    (b"garbage\r\n\r\n", "invalid_response"),
    (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "invalid_response"),
    (b"SSH-2.0-server\r\n", "server_disconnected"),
    (b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 200_000, "invalid_response"),
    (b"HTTP/1.1 102 Processing\r\n\r\n" * 30_000, "invalid_response"),
    (b"HTTP/1.1 20", "server_disconnected"),
    (b"", "server_disconnected"),
    (b"HTTP/1.1 200 OK\r\n\r\n", "tls_handshake_failed"),
]


@pytest.mark.parametrize(("answer", "code"), CONNECT_ANSWERS)
def test_what_a_proxy_answers_to_connect_becomes_what_it_must(answer: bytes, code: str) -> None:
    with proxy_server("http", answer=answer) as proxy:
        outcome = fetch(
            "https://a.example/", proxy.url(), [proxy.allowed], resolver=answering("1.1.1.1"), method="POST"
        )
    assert (outcome.error_code, outcome.request_sent) == (code, False)
    assert is_known(code)
    assert outcome.retry_after is None  # the target asked for nothing
    assert "roxy" in outcome.error_detail or code == "tls_handshake_failed"


SOCKS_ANSWERS = [
    (b"\x05\xff", "http_407"),
    (b"\x05\x01", "http_407"),
    (b"\x04\x00", "invalid_response"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "invalid_response"),
    (b"", "server_disconnected"),
    (b"\x05", "server_disconnected"),
    (b"\x05\x00", "server_disconnected"),
    (b"\x05\x00\x05\x00\x00\x01\x00", "server_disconnected"),
    (b"\x05\x00\x04\x00\x00\x01" + bytes(6), "invalid_response"),
    (b"\x05\x00\x05\x00\x00\x02" + bytes(6), "invalid_response"),
    *[
        (b"\x05\x00\x05" + bytes([reply]) + b"\x00\x01" + bytes(6), code)
        for reply, code in {
            1: "connection_refused",
            2: "blocked_target",
            3: "connection_refused",
            4: "connection_refused",
            5: "connection_refused",
            6: "connect_timeout",
            7: "invalid_response",
            8: "invalid_response",
            99: "invalid_response",
        }.items()
    ],
]


@pytest.mark.parametrize(("answer", "code"), SOCKS_ANSWERS)
def test_what_a_socks5_proxy_answers_becomes_what_it_must(answer: bytes, code: str) -> None:
    with proxy_server("socks5", answer=answer) as proxy:
        outcome = fetch("http://a.example/", proxy.url(), [proxy.allowed], resolver=answering("1.1.1.1"), method="POST")
    assert (outcome.error_code, outcome.request_sent) == (code, False)
    assert "roxy" in outcome.error_detail


def test_a_proxy_that_is_not_there_is_named_as_what_failed() -> None:
    port = free_port()
    outcome = fetch(
        "http://a.example/", f"http://127.0.0.1:{port}", [f"127.0.0.1:{port}"], resolver=answering("1.1.1.1")
    )
    assert outcome.error_code == "connection_refused"
    assert outcome.error_detail == "At the proxy: The server refused the connection."


def test_a_silent_proxy_ends_with_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for url in ("https://a.example/", "http://a.example/"):
            outcome = fetch(
                url, f"socks5://127.0.0.1:{port}", [f"127.0.0.1:{port}"], resolver=answering("1.1.1.1"),
                deadline_seconds=0.3, method="POST",
            )  # fmt: skip
            assert (outcome.error_code, outcome.request_sent) == ("deadline_exceeded", False)


def proxy_with(certificate: trustme.LeafCert) -> ProxyServer:
    return ProxyServer("https", context=server_context(certificate))


def test_the_proxys_certificate_is_checked() -> None:
    with target(tls=False) as server:
        for certificate in (STRANGER.issue_cert("127.0.0.1"), AUTHORITY.issue_cert("other.example")):
            with proxy_with(certificate) as proxy:
                outcome = fetch(server.url, proxy.url("u:p@"), [server.allowed, proxy.allowed])
                assert outcome.error_code == "tls_error"
                assert outcome.error_detail.startswith("At the proxy: ")
                assert proxy.heads == []  # so no credentials went there
    assert server.connections == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_targets_certificate_is_checked_inside_the_tunnel(scheme: str) -> None:
    context = server_context(STRANGER.issue_cert("127.0.0.1"))
    with RawServer([{"send": HELLO}], context=context) as server, proxy_server(scheme) as proxy:
        outcome = fetch(server.url, proxy.url(), [server.allowed, proxy.allowed])
    assert outcome.error_code == "tls_error"
    assert "roxy" not in outcome.error_detail
    assert server.requests == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tls", [False, True])
def test_faults_of_the_target_keep_their_codes(scheme: str, tls: bool) -> None:
    cut = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"
    with target(tls, steps=[{"send": cut}]) as server, proxy_server(scheme) as proxy:
        outcome = fetch(server.url, proxy.url(), [server.allowed, proxy.allowed])
    assert (outcome.error_code, outcome.request_sent) == ("incomplete_body", True)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cancelled_attempt_leaves_no_connection_to_a_proxy(scheme: str) -> None:
    async def run(server: RawServer, proxy: ProxyServer) -> int:
        fetcher = Fetcher(
            egress=EgressGuard([server.allowed, proxy.allowed]),
            user_agent="a",
            max_connections=1,
            ssl_context=trusting(),
        )
        request = FetchRequest(
            url=server.url, method="GET", headers=(), body=b"", deadline_seconds=5, max_bytes=1000,
            follow_redirects=True, proxy=parse_proxy(proxy.url()),
        )  # fmt: skip
        before = open_descriptors()
        attempt = asyncio.create_task(fetcher.fetch(request))
        await asyncio.sleep(0.4)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await asyncio.sleep(0.4)
        return open_descriptors() - before

    with target(tls=True, steps=[{"sleep": 9}]) as server, proxy_server(scheme) as proxy:
        assert asyncio.run(run(server, proxy)) <= 3  # the servers' own ends, in this same process


def test_no_text_of_a_request_holds_its_proxy() -> None:
    request = FetchRequest(
        url="http://a.example/", method="GET", headers=(), body=b"", deadline_seconds=5, max_bytes=1000,
        follow_redirects=True, proxy=parse_proxy("http://someone:hunter2@proxy.example"),
    )  # fmt: skip
    assert "hunter2" not in repr(request)
    assert "someone" not in repr(request)


def test_a_proxy_in_the_environment_is_still_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with target(tls=False) as server, proxy_server("http") as chosen, proxy_server("http") as other:
        monkeypatch.setenv("http_proxy", other.url())
        fetch(server.url, chosen.url(), [server.allowed, chosen.allowed, other.allowed])
        assert (chosen.connections, other.connections) == (1, 0)

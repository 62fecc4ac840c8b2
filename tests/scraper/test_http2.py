"""HTTP/2, where it is asked for: the same answers as over HTTP/1.1, with the same limits, and a code for each fault."""

import asyncio
import gzip
import os
import time
from collections.abc import Callable

import h2.errors
import pytest

from core.proxies import parse_proxy
from jobs.error_codes import is_temporary
from scraper.answers import MAX_HEADERS
from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchOutcome, FetchRequest
from tests.scraper.fetch_kin import HELLO, redirect
from tests.scraper.http2_server import Http2Conversation, Http2Server
from tests.scraper.proxy_server import ProxyServer
from tests.scraper.raw_server import RawServer
from tests.scraper.test_fetcher import stored
from tests.scraper.test_tls import AUTHORITY, server_context, trusting

MIB = 1024 * 1024
Talk = Callable[[Http2Conversation], None]


def fetch(url: str, *allow: str, http2: bool = True, proxy: str | None = None, **more: object) -> FetchOutcome:
    values = {"method": "GET", "headers": (), "body": b"", "deadline_seconds": 5, "max_bytes": 40 * MIB, **more}
    request = FetchRequest(
        url=url, proxy=parse_proxy(proxy) if proxy else None, **{"follow_redirects": True, **values}  # type: ignore[arg-type]
    )  # fmt: skip

    async def run() -> FetchOutcome:
        return await Fetcher(
            egress=EgressGuard(allow),
            user_agent="agent/1",
            max_connections=1,
            http2=http2,
            ssl_context=trusting(),
            proxy_ssl_context=trusting(),
            silence_seconds=1,
        ).fetch(request)

    return asyncio.run(run())


def test_a_request_and_its_answer_are_the_same_as_over_http11() -> None:
    def answer(talk: Http2Conversation) -> None:
        talk.head(headers=[(b"x-a", b"1"), (b"x-a", b"2"), (b"content-type", b"text/html")])
        talk.data(b"hello", end=True)

    with Http2Server(answer) as server:
        outcome = fetch(server.url + "?a=b", server.allowed, headers=(("X-Name", "caf\xe9"), ("Keep-Alive", "5")))
    assert stored(outcome) == b"hello"
    assert outcome.http_status == 200
    assert outcome.headers == [("x-a", "1"), ("x-a", "2"), ("content-type", "text/html")]
    assert outcome.evidence["connection"]["http_version"] == "HTTP/2"
    assert outcome.request_sent
    assert server.conversations[0].headers == [
        (b":method", b"GET"),
        (b":authority", server.allowed.encode()),
        (b":scheme", b"https"),
        (b":path", b"/case?a=b"),
        (b"x-name", b"caf\xe9"),
        (b"user-agent", b"agent/1"),
        (b"accept", b"*/*"),
        (b"accept-encoding", b"gzip, deflate, br, zstd"),
    ]


def test_without_the_setting_it_is_not_offered() -> None:
    context = server_context(AUTHORITY.issue_cert("127.0.0.1"))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with RawServer([{"send": HELLO}], context=context) as server:
        outcome = fetch(server.url, server.allowed, http2=False)
    assert outcome.evidence["connection"]["http_version"] == "HTTP/1.1"


@pytest.mark.parametrize("protocols", [["http/1.1"], []])
def test_a_server_that_does_not_speak_it_is_asked_over_http11(protocols: list[str]) -> None:
    context = server_context(AUTHORITY.issue_cert("127.0.0.1"))
    if protocols:
        context.set_alpn_protocols(protocols)
    with RawServer([{"send": HELLO}], context=context) as server:
        outcome = fetch(server.url, server.allowed)
    assert stored(outcome) == b"hello"
    assert outcome.evidence["connection"]["http_version"] == "HTTP/1.1"


def test_bodies_larger_than_every_window_arrive_both_ways() -> None:
    body = os.urandom(17 * MIB)

    def answer(talk: Http2Conversation) -> None:
        talk.head()
        talk.data(body, end=True)

    with Http2Server(answer) as server:
        outcome = fetch(server.url, server.allowed, method="PUT", body=body[:MIB], deadline_seconds=30)
        assert stored(outcome) == body
        assert server.conversations[0].body == body[:MIB]


def test_a_coded_body_is_decoded_and_a_head_has_none() -> None:
    def answer(talk: Http2Conversation) -> None:
        talk.head(headers=[(b"content-encoding", b"gzip")], end=talk.headers[0][1] == b"HEAD")
        if talk.headers[0][1] != b"HEAD":
            talk.data(gzip.compress(b"hello"), end=True)

    with Http2Server(answer) as server:
        assert stored(fetch(server.url, server.allowed)) == b"hello"
        assert stored(fetch(server.url, server.allowed, method="HEAD")) == b""


def test_redirects_lead_from_one_version_to_the_other() -> None:
    with RawServer([{"send": HELLO}]) as last:

        def answer(talk: Http2Conversation) -> None:
            talk.head(b"302", [(b"location", last.url.encode())], end=True)

        with Http2Server(answer) as middle, RawServer([{"send": redirect(middle.url)}]) as first:
            outcome = fetch(first.url, first.allowed, middle.allowed, last.allowed)
    assert stored(outcome) == b"hello"
    assert [hop["status"] for hop in outcome.redirects] == [302, 302]
    assert outcome.evidence["connection"]["http_version"] == "HTTP/1.1"


@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
def test_it_is_spoken_through_a_proxy(scheme: str) -> None:
    context = server_context(AUTHORITY.issue_cert("127.0.0.1")) if scheme == "https" else None
    if context is not None:
        context.set_alpn_protocols(["h2", "http/1.1"])
    with Http2Server(Http2Conversation.hello) as server, ProxyServer(scheme, context=context) as proxy:
        outcome = fetch(server.url, server.allowed, proxy.allowed, proxy=proxy.url())
    assert stored(outcome) == b"hello"
    assert outcome.evidence["connection"]["http_version"] == "HTTP/2"


def test_a_refusal_has_its_snippet_and_retry_after() -> None:
    def answer(talk: Http2Conversation) -> None:
        talk.head(b"503", [(b"retry-after", b"7")])
        talk.data(b"slow down", end=True)

    with Http2Server(answer) as server:
        outcome = fetch(server.url, server.allowed)
    assert (outcome.error_code, outcome.retry_after, outcome.body_snippet) == ("http_503", "7", "slow down")


def reset(talk: Http2Conversation) -> None:
    talk.h2.reset_stream(talk.stream, h2.errors.ErrorCodes.REFUSED_STREAM)
    talk.flush()


def reset_midway(talk: Http2Conversation) -> None:
    talk.head()
    talk.data(b"hel")
    reset(talk)


def go_away(talk: Http2Conversation) -> None:
    talk.h2.close_connection(last_stream_id=0)
    talk.flush()


def close(talk: Http2Conversation) -> None:
    talk.end()


def close_midway(talk: Http2Conversation) -> None:
    talk.head()
    talk.data(b"hel")
    talk.end()


def end_early(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"content-length", b"50")])
    talk.data(b"hello", end=True)


def say_more_than_announced(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"content-length", b"2")])
    talk.data(b"hello", end=True)


def no_status(talk: Http2Conversation) -> None:
    talk.h2.send_headers(talk.stream, [(b"x-a", b"b")], end_stream=True)
    talk.flush()


def odd_status(talk: Http2Conversation) -> None:
    talk.head(b"OK", end=True)


def short_status(talk: Http2Conversation) -> None:
    talk.head(b"20", end=True)


def upper_case_name(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"X-A", b"b")], end=True)


def line_break_in_value(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"x-a", b"b\r\nx-c: d")], end=True)


def nul_in_value(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"x-a", b"b\0c")], end=True)


def odd_length(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"content-length", b"-5")])
    talk.data(b"hello", end=True)


def many_headers(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"a", b"b")] * (MAX_HEADERS + 1), end=True)


def long_headers(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"x-%d" % n, b"v" * 1000) for n in range(110)], end=True)


def header_bomb(talk: Http2Conversation) -> None:
    """A few bytes each on the wire, by reference to one long header in the table."""
    talk.head(headers=[(b"x-a", b"v" * 4000)] * 4000, end=True)


def endless_hints(talk: Http2Conversation) -> None:
    for number in range(2_000):
        talk.head(b"103", [(b"link", b"</%d>" % number + b"x" * 500)])


def endless_pings(talk: Http2Conversation) -> None:
    talk.socket.sendall((b"\x00\x00\x08\x06\x00" + bytes(4) + b"12345678") * 20_000)


def endless_empty_data(talk: Http2Conversation) -> None:
    talk.head()
    talk.socket.sendall((bytes(5) + talk.stream.to_bytes(4, "big")) * 5_000)


def tiny_pieces(talk: Http2Conversation) -> None:
    talk.head()
    talk.socket.sendall((b"\x00\x00\x01\x00\x00" + talk.stream.to_bytes(4, "big") + b"x") * 5_000)


def small_pieces(talk: Http2Conversation) -> None:
    talk.head()
    for _ in range(2_000):
        talk.data(b"x" * 100)
    talk.data(b"", end=True)


def garbage(talk: Http2Conversation) -> None:
    talk.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" * 10_000)


def push(talk: Http2Conversation) -> None:
    talk.h2.remote_settings.enable_push = 1  # a client that allowed none gets one
    frame = b"\x00\x00\x05\x05\x04" + talk.stream.to_bytes(4, "big") + b"\x00\x00\x00\x02\x88"
    talk.socket.sendall(frame)


def too_much(talk: Http2Conversation) -> None:
    talk.head()
    talk.data(b"x" * 5 * MIB, end=True)


def too_much_by_its_length(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"content-length", b"%d" % (5 * MIB))])


def bomb(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"content-encoding", b"gzip")])
    talk.data(gzip.compress(bytes(64 * MIB), 1), end=True)


def cut_gzip(talk: Http2Conversation) -> None:
    talk.head(headers=[(b"content-encoding", b"gzip")])
    talk.data(gzip.compress(b"hello" * 100)[:-5], end=True)


def silence(talk: Http2Conversation) -> None:
    time.sleep(2)


FAULTS: list[tuple[Talk, str]] = [
    (reset, "connection_reset"),
    (reset_midway, "connection_reset"),
    (go_away, "server_disconnected"),
    (close, "server_disconnected"),
    (close_midway, "incomplete_body"),
    (end_early, "incomplete_body"),
    (say_more_than_announced, "invalid_response"),
    (no_status, "invalid_response"),
    (odd_status, "invalid_response"),
    (short_status, "invalid_response"),
    (upper_case_name, "invalid_response"),
    (line_break_in_value, "invalid_response"),
    (nul_in_value, "invalid_response"),
    (odd_length, "invalid_response"),
    (many_headers, "invalid_response"),
    (long_headers, "invalid_response"),
    (header_bomb, "invalid_response"),
    (endless_hints, "invalid_response"),
    (endless_pings, "invalid_response"),
    (endless_empty_data, "invalid_response"),
    (tiny_pieces, "invalid_response"),
    (garbage, "invalid_response"),
    (push, "invalid_response"),
    (too_much, "response_too_large"),
    (too_much_by_its_length, "response_too_large"),
    (bomb, "response_too_large"),
    (cut_gzip, "incomplete_body"),
    (silence, "read_timeout"),
]


@pytest.mark.parametrize(("talk", "code"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_becomes_what_it_must(talk: Talk, code: str) -> None:
    with Http2Server(talk) as server:
        outcome = fetch(server.url, server.allowed, max_bytes=10_000, deadline_seconds=20)
    assert outcome.error_code == code
    assert outcome.error_detail
    assert outcome.body is None
    if talk in (reset, go_away, close):
        assert is_temporary(code)


def test_a_body_in_small_pieces_is_taken() -> None:
    with Http2Server(small_pieces) as server:
        assert stored(fetch(server.url, server.allowed)) == b"x" * 200_000


def test_a_server_that_takes_no_body_is_waited_for_until_the_deadline() -> None:
    with Http2Server(Http2Conversation.hello, takes_bodies=False) as server:
        outcome = fetch(server.url, server.allowed, method="POST", body=b"x" * MIB, deadline_seconds=0.5)
    assert outcome.error_code == "deadline_exceeded"


@pytest.mark.parametrize("headers", [(("X A", "b"),), (("X-A", "a\r\nX-B: c"),), (("", "b"),)])
def test_what_http_cannot_carry_is_not_sent(headers: tuple[tuple[str, str], ...]) -> None:
    with Http2Server(Http2Conversation.hello) as server:
        outcome = fetch(server.url, server.allowed, headers=headers)
        assert (outcome.error_code, outcome.request_sent) == ("invalid_request", False)
    assert all(conversation.headers == [] for conversation in server.conversations)

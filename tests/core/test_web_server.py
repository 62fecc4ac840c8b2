"""The real web server under what the internet sends: bounded, never a 500, never HTML, and alive afterwards."""

from __future__ import annotations

import json
import time

import psutil
import pytest

from tests.core.web_role import Reply, WebRole

BODY = b'{"url": "http://a.example/"}'
JSON = b"Content-Type: application/json\r\n"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n"
SLOW_SENDERS = 48  # three times the threads of both workers


def request(line: bytes, head: bytes, more: bytes = b"", body: bytes = b"") -> bytes:
    return line + b" HTTP/1.1\r\n" + head + more + b"\r\n" + body


def post(head: bytes, more: bytes, body: bytes) -> bytes:
    return request(b"POST /api/v1/jobs", head, more, body)


def sized(body: bytes) -> bytes:
    return JSON + b"Content-Length: %d\r\n" % len(body)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def assert_told(reply: Reply, *statuses: int) -> None:
    """The server answered with one of `statuses`, and what body there is, is a problem."""
    assert reply.status in statuses
    if reply.body:
        assert reply.headers["content-type"] == "application/problem+json"
        assert json.loads(reply.body)["status"] == reply.status


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"\x00\x01\x02\r\n\r\n", (400,)),
        (b"GET\r\n\r\n", (400,)),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", (400,)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", (400,)),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: localhost\r\nConnection: close\r\n\r\n", (400,)),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (400,)),
        (b"GET /healthz HTTP/1.1\r\nHost: a\xffb\r\nConnection: close\r\n\r\n", (400,)),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (400, 405)),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (0, 400)),
    ],
)
def test_a_line_that_is_no_request_is_refused(web: WebRole, data: bytes, statuses: tuple[int, ...]) -> None:
    assert_told(web.send(data), *statuses)


@pytest.mark.parametrize(
    "path",
    [b"%00", b"%ff%fe", b"%zz%", b"%ED%A0%80", b"%E2%82%AC", b"../../etc/passwd", b"a" * 40_000, b"\xff", b"\x00"],
)
def test_an_odd_path_is_not_found(web: WebRole, head: bytes, path: bytes) -> None:
    assert_told(web.send(request(b"GET /api/v1/jobs/" + path, head)), 400, 404)
    assert_told(web.send(request(b"GET /static/" + path, head)), 400, 404)


@pytest.mark.parametrize(
    ("more", "statuses"),
    [
        (b"".join(b"X-%d: a\r\n" % n for n in range(10_000)), (431,)),
        (b"X-A: " + b"a" * 1_000_000 + b"\r\n", (431,)),
        (b"X-A: a\x00b\r\n", (400,)),
        (b"X-A : b\r\n", (400,)),
        (b"Accept: " + b"a/b," * 10_000 + b"\r\n", (200,)),
        (b"Accept: a/b; x*=nope'x'y\r\n", (406,)),
        (b"Content-Type: a/b; x*=nope'x'y\r\n", (400,)),
        (b"Content-Type: " + b"a;" * 30_000 + b"\r\n", (200, 431)),
        (b"X-API-Key: \xff\r\n", (401,)),
        (b"X-Request-Id: \xff\r\n", (200,)),
    ],
)
def test_odd_headers_are_bounded(web: WebRole, head: bytes, more: bytes, statuses: tuple[int, ...]) -> None:
    started = time.monotonic()
    reply = web.send(request(b"GET /api/v1/jobs", head, more))
    assert reply.status in statuses
    assert time.monotonic() - started < 5.0
    if reply.status != 200:
        assert_told(reply, *statuses)


def test_a_url_of_100_kilobytes_is_refused(web: WebRole, head: bytes) -> None:
    assert_told(web.send(request(b"GET /api/v1/jobs?tag=" + b"a" * 100_000, head)), 414, 431)


@pytest.mark.parametrize("method", [b"TRACE", b"DELETE", b"BREW", b"PATCH", b"PUT"])
def test_a_method_that_is_not_served_is_405(web: WebRole, head: bytes, method: bytes) -> None:
    reply = web.send(request(method + b" /api/v1/jobs", head))
    assert_told(reply, 405)
    assert "POST" in reply.headers["allow"]


def test_a_head_request_has_no_body(web: WebRole, head: bytes) -> None:
    assert web.send(request(b"HEAD /api/v1/jobs", head)).body == b""
    assert web.send(request(b"HEAD /nowhere", head)).body == b""


@pytest.mark.parametrize(
    ("more", "body", "statuses"),
    [
        (JSON + b"Content-Length: 5\r\nContent-Length: 28\r\n", BODY, (400,)),
        (JSON + b"Content-Length: -5\r\n", BODY, (400,)),
        (JSON + b"Content-Length: abc\r\n", BODY, (400,)),
        (JSON + b"Content-Length: 99999999999999999999999999\r\n", BODY, (400,)),
        (JSON + b"Content-Length: 9999999999\r\n", BODY, (413,)),
        (sized(b"x" * 5_000_000), b"x" * 5_000_000, (413,)),
        (CHUNKED, chunk(b"x" * 0x100000) * 5 + b"0\r\n\r\n", (413,)),
        (CHUNKED, b"zz\r\nabc\r\n0\r\n\r\n", (400,)),
        (CHUNKED, b"ffffffffffffffffff\r\nabc\r\n0\r\n\r\n", (400,)),
        (CHUNKED, b"0\r\n\r\n", (400,)),
        (CHUNKED, chunk(BODY) + b"0\r\nX-Trailer: a\r\n\r\n", (400,)),
        (JSON + b"Transfer-Encoding: xchunked\r\n", chunk(BODY), (400,)),
        (JSON + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n", b"\x1f\x8b\x08\x00", (415,)),
        (b"Content-Type: text/plain\r\nContent-Length: 3\r\n", b"abc", (415,)),
        (sized(b"[" * 100_000), b"[" * 100_000, (400,)),
        (sized(b'{"url": NaN}'), b'{"url": NaN}', (400,)),
        (sized(b'{"url": "\\ud800"}'), b'{"url": "\\ud800"}', (400,)),
        (sized(b"[]"), b"[]", (422,)),
    ],
)
def test_odd_bodies_are_refused(web: WebRole, head: bytes, more: bytes, body: bytes, statuses: tuple[int, ...]) -> None:
    assert_told(web.send(post(head, more, body)), *statuses)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"zz\r\nabc\r\n0\r\n\r\n", "broken"),
        (chunk(BODY) + b"zz\r\nabc\r\n0\r\n\r\n", "broken"),
        (b"0\r\n\r\n", "empty"),
    ],
)
def test_a_chunked_body_is_told_from_an_empty_one(web: WebRole, head: bytes, body: bytes, said: str) -> None:
    reply = web.send(post(head, CHUNKED, body))
    assert_told(reply, 400)
    assert said in json.loads(reply.body)["detail"]


def test_chunks_that_come_slowly_are_whole(web: WebRole, head: bytes) -> None:
    with web.connect() as link:
        for piece in (post(head, CHUNKED, b""), chunk(BODY[:5]), chunk(BODY[5:]), b"0\r\n\r\n"):
            link.sendall(piece)
            time.sleep(0.1)
        assert b" 202 " in link.recv(65536)


@pytest.mark.parametrize("charset", [b"hex", b"zip", b"idna", b"rot13"])
def test_no_charset_makes_a_query_a_fault_of_ours(web: WebRole, head: bytes, charset: bytes) -> None:
    more = b"Content-Type: application/json; charset=" + charset + b"\r\n"
    assert web.send(request(b"GET /healthz?x=%ff", head, more)).status == 200
    body = more + b"Content-Length: %d\r\n" % len(BODY)
    assert_told(web.send(request(b"POST /api/v1/jobs?x=%ff", head, body, BODY)), 415)


@pytest.mark.parametrize(
    ("line", "more", "status"),
    [
        (b"GET /\xff", b"", 400),
        (b"GET /a b", b"", 400),
        (b"GET /", b"X-A: a\x01b\r\n", 400),
        (b"GET /" + b"a" * 70_000, b"", 414),
        (b"GET /", b"".join(b"X-%d: a\r\n" % n for n in range(101)), 431),
    ],
)
def test_what_no_code_of_ours_sees_is_as_bare_as_the_decision_says(
    web: WebRole, head: bytes, line: bytes, more: bytes, status: int
) -> None:
    """ADR 0007. Where this fails because granian has learnt to ask us, that page and this test may go."""
    reply = web.send(request(line, head, more))
    assert (reply.status, reply.body) == (status, b"")
    assert not {"content-type", "x-request-id"} & reply.headers.keys()


@pytest.mark.parametrize("more", [CHUNKED, JSON + b"Content-Length: 100\r\n"])
def test_a_body_that_is_cut_short_is_refused(web: WebRole, head: bytes, more: bytes) -> None:
    cut = b"100\r\n" + BODY[:-3] if more == CHUNKED else BODY
    assert_told(web.send(post(head, more, cut), then_close=True), 400)


@pytest.mark.parametrize("more", [CHUNKED, sized(BODY), sized(BODY) + b"Expect: 100-continue\r\n"])
def test_a_good_body_is_taken_however_it_is_sent(web: WebRole, head: bytes, more: bytes) -> None:
    body = chunk(BODY) + b"0\r\n\r\n" if more == CHUNKED else BODY
    assert web.send(post(head, more, body)).status == 202


def test_only_a_batch_may_be_larger_than_a_mebibyte(web: WebRole, head: bytes) -> None:
    rows = json.dumps([{"url": "http://a.example/", "method": "POST", "body": "x" * 500_000}] * 4).encode()
    assert_told(web.send(post(head, sized(rows), rows)), 413)
    reply = web.send(request(b"POST /api/v1/jobs/batch", head, sized(rows), rows))
    assert (reply.status, json.loads(reply.body)["accepted"]) == (202, 4)
    chunked = chunk(rows) + b"0\r\n\r\n"
    assert web.send(request(b"POST /api/v1/jobs/batch", head, CHUNKED, chunked)).status == 202


def test_clients_that_never_finish_their_bodies_hold_nobody_up(web: WebRole, head: bytes) -> None:
    senders = [web.connect() for _ in range(SLOW_SENDERS)]
    try:
        for sender in senders:
            sender.sendall(post(head, JSON + b"Content-Length: 1000\r\n", b'{"url": '))
        time.sleep(0.5)
        for _ in range(5):
            started = time.monotonic()
            assert web.send(post(head, sized(BODY), BODY)).status == 202
            assert time.monotonic() - started < 5.0
    finally:
        for sender in senders:
            sender.close()


def test_memory_stays_flat_under_large_and_deep_bodies(web: WebRole, head: bytes) -> None:
    bodies = [b"[" * 1_000_000, b'{"a":' * 200_000, b"x" * 1_048_576, b'{"url": "' + b"x" * 1_000_000 + b'"}']

    def storm() -> int:
        for body in bodies * 4:
            assert_told(web.send(post(head, sized(body), body)), 400, 422)
        return sum(child.memory_info().rss for child in psutil.Process(web.pid).children(recursive=True))

    storm(), storm()  # each thread of each worker meets the largest once
    warm = storm()
    assert storm() - warm < 32 * 1024 * 1024

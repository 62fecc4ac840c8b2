"""What a fetch sends, follows, refuses, records and leaves behind."""

import asyncio
import hashlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import brotli
import pytest

from scraper.bodies import MEMORY_BYTES
from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchOutcome, FetchRequest
from tests.scraper.fetch_kin import HELLO, redirect
from tests.scraper.raw_server import RawServer, wait_until
from tests.scraper.test_egress import answering

Headers = tuple[tuple[str, str], ...]


def order(url: str, method: str = "GET", headers: Headers = (), body: bytes = b"", **more: Any) -> FetchRequest:
    values = {"deadline_seconds": 5, "max_bytes": 10_000_000, "follow_redirects": True, **more}
    return FetchRequest(url=url, method=method, headers=headers, body=body, **values)


def fetch(request: FetchRequest, allow: Sequence[str] = (), **settings: Any) -> FetchOutcome:
    guard = settings.pop("egress", None) or EgressGuard(allow)

    async def run() -> FetchOutcome:
        return await Fetcher(egress=guard, user_agent="agent/1", max_connections=4, **settings).fetch(request)

    return asyncio.run(run())


def stored(outcome: FetchOutcome) -> bytes:
    assert outcome.error_code is None, outcome
    assert outcome.body is not None
    with outcome.body as body:
        return body.file.read()


def sent_headers(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


def test_a_success_is_recorded_whole() -> None:
    head = "HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: caf\xe9\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
    with RawServer([{"send": head}]) as server:
        outcome = fetch(order(server.url + "#part"), [server.allowed])
    assert outcome.http_status == 200
    assert outcome.final_url == server.url
    assert outcome.headers[:2] == [("X-A", "1"), ("x-a", "caf\xe9")]
    assert outcome.content_type == "text/html"
    assert outcome.redirects == []
    assert outcome.request_sent
    assert outcome.body is not None
    assert (outcome.body.size, outcome.body.sha256) == (5, hashlib.sha256(b"hello").hexdigest())
    assert stored(outcome) == b"hello"
    assert set(outcome.timings) == {"dns", "connect", "first_byte", "total"}
    assert 0 < outcome.timings["first_byte"] <= outcome.timings["total"] < 5


def test_what_is_sent_by_default() -> None:
    with RawServer([]) as server:
        fetch(order(server.url + "?a=b&c=%20"), [server.allowed])
    assert server.requests[0].startswith(b"GET /case?a=b&c=%20 HTTP/1.1\r\n")
    assert sent_headers(server.requests[0]) == {
        "host": server.allowed,
        "user-agent": "agent/1",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate, br, zstd",
        "connection": "close",
    }


def test_the_callers_headers_win_and_keep_their_bytes() -> None:
    headers = (("User-Agent", "mine"), ("ACCEPT", "text/html"), ("accept-encoding", "br"), ("X-Name", "caf\xe9"))
    with RawServer([]) as server:
        fetch(order(server.url, headers=headers), [server.allowed])
    for line in (b"User-Agent: mine", b"ACCEPT: text/html", b"accept-encoding: br", b"X-Name: caf\xe9"):
        assert server.requests[0].count(line + b"\r\n") == 1
    assert server.requests[0].lower().count(b"accept-encoding") == 1


def test_a_range_is_asked_for_unencoded() -> None:
    with RawServer([]) as server:
        fetch(order(server.url, headers=(("Range", "bytes=0-9"),)), [server.allowed])
    assert sent_headers(server.requests[0])["accept-encoding"] == "identity"


@pytest.mark.parametrize(("method", "length"), [("POST", "0"), ("PUT", "0"), ("DELETE", None), ("OPTIONS", None)])
def test_a_length_is_sent_where_a_body_is_expected(method: str, length: str | None) -> None:
    with RawServer([{"send": HELLO}]) as server:
        fetch(order(server.url, method), [server.allowed])
    assert sent_headers(server.requests[0]).get("content-length") == length


def test_a_body_of_a_megabyte_arrives() -> None:
    body = os.urandom(1_000_000)
    with RawServer([{"send": HELLO}]) as server:
        outcome = fetch(order(server.url, "PUT", body=body), [server.allowed])
        assert stored(outcome) == b"hello"
    assert server.requests[0].partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize(
    "headers",
    [
        (("Host", "other.example"),),
        (("Content-Length", "3"),),
        (("transfer-encoding", "chunked"),),
        (("Proxy-Authorization", "x"),),
        (("X-A", "a\r\nX-B: c"),),
        (("X-A", "a\0b"),),
        (("X A", "b"),),
        (("", "b"),),
        (("X-\xe9", "b"),),
        (("X-A", "\u20ac"),),
        (("X-A", "\ud800"),),
    ],
)
def test_a_header_that_must_not_be_sent_is_an_invalid_request(headers: Headers) -> None:
    with RawServer([{"send": HELLO}]) as server:
        outcome = fetch(order(server.url, headers=headers), [server.allowed])
    assert outcome.error_code == "invalid_request"
    assert server.requests == []
    assert not outcome.request_sent


@pytest.mark.parametrize("method", ["G\u00c9T", "GET /x HTTP/1.1\r\nX:", "", "GE T"])
def test_a_method_that_is_none_is_an_invalid_request(method: str) -> None:
    with RawServer([{"send": HELLO}]) as server:
        assert fetch(order(server.url, method), [server.allowed]).error_code == "invalid_request"


@pytest.mark.parametrize("url", ["", "ftp://a.example/", "http://u:p@a.example/", "http://a.example:0/", "\ud800"])
def test_a_url_that_intake_would_refuse_is_an_invalid_request(url: str) -> None:
    assert fetch(order(url)).error_code == "invalid_request"


def test_a_name_is_resolved_once_for_each_connection_and_sent_as_host() -> None:
    with RawServer([{"send": HELLO}]) as server:
        answers = answering("127.0.0.1")
        guard = EgressGuard([server.allowed], resolver=answers)
        outcome = fetch(order(f"http://Name.Example:{server.port}/case"), egress=guard)
        assert stored(outcome) == b"hello"
    assert answers.calls == 1
    assert sent_headers(server.requests[0])["host"] == f"name.example:{server.port}"


def test_the_next_address_is_tried_when_one_refuses() -> None:
    with RawServer([{"send": HELLO}]) as server:
        guard = EgressGuard(["127.0.0.0/8"], resolver=answering("127.0.0.2", "127.0.0.3", "127.0.0.1"))
        outcome = fetch(order(f"http://name.example:{server.port}/case"), egress=guard)
        assert stored(outcome) == b"hello"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_nobody_listening_is_connection_refused() -> None:
    port = free_port()
    outcome = fetch(order(f"http://127.0.0.1:{port}/"), [f"127.0.0.1:{port}"])
    assert (outcome.error_code, outcome.request_sent) == ("connection_refused", False)
    assert "127.0.0.1" not in outcome.error_detail


def test_a_connection_that_is_never_accepted_is_connect_timeout() -> None:
    """A listener with a full backlog drops what comes, as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            outcome = fetch(order(f"http://127.0.0.1:{port}/"), [f"127.0.0.1:{port}"], connect_seconds=0.3)
    assert (outcome.error_code, outcome.request_sent) == ("connect_timeout", False)
    assert outcome.timings["total"] < 2


class BrokenResolver:
    def __init__(self, error: Exception | None, seconds: float = 0) -> None:
        self._error = error
        self._seconds = seconds

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(self._seconds)
        if self._error is not None:
            raise self._error
        return []


@pytest.mark.parametrize(
    "resolver",
    [
        BrokenResolver(socket.gaierror(socket.EAI_NONAME, "no such name")),
        BrokenResolver(socket.gaierror(socket.EAI_AGAIN, "try again")),
        BrokenResolver(UnicodeError("label too long")),
        BrokenResolver(None),
        BrokenResolver(None, seconds=30),
    ],
)
def test_a_name_without_an_address_is_dns_error(resolver: BrokenResolver) -> None:
    outcome = fetch(order("http://name.example/"), egress=EgressGuard(resolver=resolver), connect_seconds=0.2)
    assert (outcome.error_code, outcome.request_sent) == ("dns_error", False)


def test_silence_is_read_timeout_when_it_comes_before_the_deadline() -> None:
    with RawServer([{"send": "HTTP/1.1 200 OK\r\n"}, {"sleep": 5}]) as server:
        outcome = fetch(order(server.url), [server.allowed], silence_seconds=0.2)
    assert outcome.error_code == "read_timeout"


def test_an_unknown_error_is_internal_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> tuple[FetchOutcome, int]:
        guard = EgressGuard(resolver=BrokenResolver(ZeroDivisionError("a bug")))
        fetcher = Fetcher(egress=guard, user_agent="a", max_connections=1)
        return await fetcher.fetch(order("http://name.example/")), fetcher.internal_errors

    outcome, count = asyncio.run(run())
    assert (outcome.error_code, count) == ("internal_fetch_error", 1)
    assert "ZeroDivisionError: a bug" in caplog.text
    assert "bug" not in outcome.error_detail


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_kept_raw(status: int) -> None:
    with RawServer([{"send": f"HTTP/1.1 {status} X\r\nRetry-After: soon \r\nContent-Length: 4\r\n\r\nslow"}]) as server:
        outcome = fetch(order(server.url), [server.allowed])
    assert (outcome.error_code, outcome.retry_after, outcome.body_snippet) == (f"http_{status}", "soon", "slow")
    assert outcome.body is None


def test_a_snippet_is_two_kib_of_clean_decoded_text() -> None:
    body = "\xff\0" + "x" * 5000
    with RawServer([{"send": f"HTTP/1.1 500 X\r\nContent-Length: {len(body)}\r\n\r\n{body}"}]) as server:
        outcome = fetch(order(server.url), [server.allowed])
    assert outcome.body_snippet == "\ufffd\ufffd" + "x" * 2046


def test_kept_headers_are_cut_off() -> None:
    lines = "".join(f"X-{number}: {'v' * 1000}\r\n" for number in range(90))
    with RawServer([{"send": f"HTTP/1.1 200 OK\r\n{lines}Content-Length: 5\r\n\r\nhello"}]) as server:
        outcome = fetch(order(server.url), [server.allowed])
        assert stored(outcome) == b"hello"
    assert sum(len(name) + len(value) for name, value in outcome.headers) <= 32 * 1024
    assert [name for name, _ in outcome.headers[:3]] == ["X-0", "X-1", "X-2"]


SECRETS: Headers = (
    ("Authorization", "Bearer secret"),
    ("Cookie", "secret=1"),
    ("X-API-Key", "secret"),
    ("X-Whatever", "secret"),
    ("Referer", "http://a.example/secret"),
)


def test_only_harmless_headers_go_along_to_another_origin() -> None:
    harmless = (("Accept", "text/html"), ("Accept-Language", "fr"), ("User-Agent", "mine"))
    with RawServer([]) as other, RawServer([{"send": redirect(f"http://127.0.0.1:{other.port}/x")}]) as first:
        outcome = fetch(order(first.url, headers=SECRETS + harmless), [first.allowed, other.allowed])
        assert outcome.final_url == f"http://127.0.0.1:{other.port}/x"
    assert first.requests[0].count(b"secret") == 5
    assert b"secret" not in other.requests[0]
    for line in (b"Accept: text/html\r\n", b"Accept-Language: fr\r\n", b"User-Agent: mine\r\n"):
        assert line in other.requests[0]


def test_secrets_stay_on_their_own_origin() -> None:
    with RawServer([{"send": redirect("/next")}]) as server:
        fetch(order(server.url, headers=SECRETS), [server.allowed])
    assert server.requests[1].count(b"secret") == 5


def test_a_post_that_became_a_get_leaves_its_body_and_type_behind() -> None:
    headers = (("Content-Type", "application/json"), ("Content-Language", "en"), ("X-A", "b"))
    with RawServer([{"send": redirect("/next", "303 See Other")}]) as server:
        fetch(order(server.url, "POST", headers, b"{}"), [server.allowed])
    assert server.requests[1].startswith(b"GET /next ")
    assert not [name for name in sent_headers(server.requests[1]) if name.startswith("content-")]
    assert sent_headers(server.requests[1])["x-a"] == "b"


def test_a_body_goes_along_with_307() -> None:
    with RawServer([{"send": redirect("/next", "307 T")}]) as server:
        fetch(order(server.url, "POST", (("Content-Type", "a/b"),), b"payload"), [server.allowed])
    assert server.requests[1].endswith(b"\r\n\r\npayload")
    assert sent_headers(server.requests[1])["content-type"] == "a/b"


def test_ten_redirects_are_followed_and_no_more() -> None:
    with RawServer([{"send": redirect("/SELF")}]) as server:
        outcome = fetch(order(server.url), [server.allowed])
    assert outcome.error_code == "too_many_redirects"
    assert len(outcome.redirects) == 10
    assert server.connections == 11


def test_no_cookie_is_kept_and_no_connection_used_again() -> None:
    response = "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\n\r\nhello" + HELLO.replace("hello", "evil!")

    async def run(server: RawServer) -> list[bytes]:
        fetcher = Fetcher(egress=EgressGuard([server.allowed]), user_agent="a", max_connections=1)
        return [stored(await fetcher.fetch(order(server.url))) for _ in range(3)]

    with RawServer([{"send": response}]) as server:
        assert asyncio.run(run(server)) == [b"hello"] * 3
    assert server.connections == 3
    assert not any(b"cookie" in request.lower() for request in server.requests)


def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer([{"send": HELLO}]) as server, RawServer([]) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert stored(fetch(order(server.url), [server.allowed, proxy.allowed])) == b"hello"
    assert proxy.connections == 0


def test_no_more_connections_than_allowed() -> None:
    async def run(server: RawServer) -> int:
        fetcher = Fetcher(egress=EgressGuard([server.allowed]), user_agent="a", max_connections=3)
        attempts = [asyncio.create_task(fetcher.fetch(order(server.url))) for _ in range(9)]
        await asyncio.sleep(0.15)
        running = server.connections
        for outcome in await asyncio.gather(*attempts):
            stored(outcome)
        return running

    with RawServer([{"sleep": 0.3}, {"send": HELLO}]) as server:
        assert asyncio.run(run(server)) == 3


@pytest.mark.parametrize(
    "steps", [[{"sleep": 9}], [{"send": "HTTP/1.1 200 OK\r\n\r\n" + "x" * 3_000_000}, {"sleep": 9}]]
)
def test_a_cancelled_attempt_lets_go_of_everything(steps: list[dict[str, Any]], tmp_path: Path) -> None:
    async def run(server: RawServer) -> int:
        fetcher = Fetcher(egress=EgressGuard([server.allowed]), user_agent="a", max_connections=1,
                          spool_directory=str(tmp_path))  # fmt: skip
        before = open_descriptors()
        attempt = asyncio.create_task(fetcher.fetch(order(server.url)))
        await asyncio.sleep(0.3)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await asyncio.sleep(0.05)
        after = open_descriptors() - 1  # the server's end, in this same process
        second = asyncio.create_task(fetcher.fetch(order(server.url)))  # its slot is free again
        assert await asyncio.to_thread(wait_until, lambda: server.connections == 2)
        second.cancel()
        return after - before

    with RawServer(steps) as server:
        assert asyncio.run(run(server)) <= 0
    assert list(tmp_path.iterdir()) == []


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_body_over_one_mib_is_on_disk_and_gone_after_close(tmp_path: Path) -> None:
    size = 3 * MEMORY_BYTES
    with RawServer([{"send": f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"}, {"send": "x" * size}]) as server:
        outcome = fetch(order(server.url), [server.allowed], spool_directory=str(tmp_path))
    assert outcome.body is not None
    assert (outcome.body.size, outcome.body.file.tell()) == (size, 0)
    assert outcome.body.sha256 == hashlib.sha256(b"x" * size).hexdigest()
    assert hasattr(outcome.body.file, "fileno")
    assert os.fstat(outcome.body.file.fileno()).st_size == size
    outcome.body.close()
    assert list(tmp_path.iterdir()) == []


def test_request_sent_says_whether_a_post_may_be_tried_again() -> None:
    with RawServer([{"reset": True}]) as server:
        outcome = fetch(order(server.url, "POST", body=b"x"), [server.allowed])
    assert outcome.error_code in ("connection_reset", "server_disconnected")
    assert outcome.request_sent


def test_an_answer_before_the_upload_ends_is_taken() -> None:
    """The server answers 413 and closes after the head; the upload breaks, the answer counts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer_early() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=answer_early)
        thread.start()
        outcome = fetch(order(f"http://127.0.0.1:{port}/", "POST", body=bytes(5_000_000)), [f"127.0.0.1:{port}"])
        thread.join()
    assert (outcome.error_code, outcome.body_snippet) == ("http_413", "big")


def with_brotli(body: bytes, *, cut: int = 0) -> str:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: {len(body)}\r\n\r\n"
    return head + body[: len(body) - cut].decode("latin-1")


def test_a_few_bytes_that_become_many_let_other_attempts_go_on() -> None:
    body = brotli.compress(bytes(48 * 1024 * 1024), quality=5)
    assert len(body) < 256
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            gaps.append(time.perf_counter() - before)

    async def run(request: FetchRequest, guard: EgressGuard) -> FetchOutcome:
        ticking = asyncio.create_task(tick())
        try:
            return await Fetcher(egress=guard, user_agent="a", max_connections=1).fetch(request)
        finally:
            ticking.cancel()

    with RawServer([{"send": with_brotli(body)}]) as server:
        outcome = asyncio.run(run(order(server.url, max_bytes=10**8), EgressGuard([server.allowed])))
    assert outcome.body is not None
    outcome.body.close()
    assert max(gaps) < outcome.timings["total"] / 3


def test_an_encoded_body_that_does_not_come_holds_up_no_other() -> None:
    body = brotli.compress(b"hello " * 1000)
    stuck: list[dict[str, Any]] = [{"send": with_brotli(body, cut=5)}, {"sleep": 20}]

    async def run(slow: str, quick: str, guard: EgressGuard) -> FetchOutcome:
        fetcher = Fetcher(egress=guard, user_agent="a", max_connections=2)
        waiting = asyncio.create_task(fetcher.fetch(order(slow)))
        await asyncio.sleep(0.3)
        outcome = await asyncio.wait_for(fetcher.fetch(order(quick)), 5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return outcome

    with RawServer(stuck) as slow, RawServer([{"send": with_brotli(body)}]) as quick:
        outcome = asyncio.run(run(slow.url, quick.url, EgressGuard([slow.allowed, quick.allowed])))
    assert stored(outcome) == b"hello " * 1000

"""What comes in from the web server before Django sees it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from core import gateway
from core.gateway import Gateway, environ_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LIMIT = 1000


@dataclass
class FakeHeaders:
    """As granian's: repeated names stay apart, values that are not ASCII are missing from `items`."""

    pairs: list[tuple[str, str | None]]

    def items(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.pairs if value is not None]

    def keys(self) -> list[str]:
        return sorted({name for name, _ in self.pairs})

    def get(self, key: str, default: Any = None) -> Any:
        return next((value for name, value in self.items() if name == key), default)


@dataclass
class FakeScope:
    """The head of a request."""

    headers: FakeHeaders
    path: str = "/"
    method: str = "POST"
    query_string: str = "a=b"
    client: str = "127.0.0.1:5000"
    server: str = "127.0.0.1:8000"
    scheme: str = "http"
    http_version: str = "1.1"


@dataclass
class FakeExchange:
    """A body in pieces, with a pause before each; keeps the answer."""

    pieces: Iterable[bytes] = ()
    pause: float = 0.0
    taken: int = 0
    answer: tuple[int, dict[str, str], bytes] | None = None
    closed: list[bool] = field(default_factory=list)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(self.pause)
            self.taken += len(piece)
            yield piece

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.answer = (status, {name.lower(): value for name, value in headers}, body)


def echo(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    """Answers with what it was given."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "application/json")])
    seen = {"length": environ.get("CONTENT_LENGTH"), "body": body.decode(), "path": environ["PATH_INFO"]}
    return [json.dumps(seen).encode()]


def ask(
    exchange: FakeExchange,
    *headers: tuple[str, str | None],
    application: Any = echo,
    seconds: float = 5.0,
    **scope: Any,
) -> tuple[int, dict[str, str], Any]:
    """Send one request through a gateway of its own."""
    door = Gateway(application, threads=2, body_limit=LIMIT, body_seconds=seconds)
    asyncio.run(door.__rsgi__(FakeScope(FakeHeaders([("host", "a"), *headers]), **scope), exchange))
    assert exchange.answer is not None
    status, fields, body = exchange.answer
    return status, fields, json.loads(body)


CHUNKED = ("transfer-encoding", "chunked")


def test_a_chunked_body_gets_a_length() -> None:
    assert ask(FakeExchange([b"ab", b"c"]), CHUNKED)[2] == {"length": "3", "body": "abc", "path": "/"}


def test_a_body_is_read_whole_before_the_application_runs() -> None:
    assert ask(FakeExchange([b"ab", b"c"], pause=0.01), ("content-length", "3"))[2]["body"] == "abc"


def test_a_chunked_body_over_the_limit_is_cut_one_byte_after_it() -> None:
    exchange = FakeExchange([b"x" * 400] * 10)
    assert ask(exchange, CHUNKED)[2]["length"] == str(LIMIT + 1)
    assert exchange.taken == 4000, "the rest is read, so that the sender gets to the answer"


def test_a_declared_body_over_the_limit_is_dropped() -> None:
    seen = ask(FakeExchange([b"x" * 400] * 5), ("content-length", "2000"))[2]
    assert (seen["length"], seen["body"]) == ("2000", "")


@pytest.mark.parametrize("more", [("expect", "100-continue"), ("content-length", str(10**12))])
def test_a_body_that_is_not_worth_waiting_for_is_not_read(more: tuple[str, str]) -> None:
    exchange = FakeExchange([b"x"] * 10)
    headers = dict([("content-length", "2000"), more])
    ask(exchange, *headers.items())
    assert exchange.taken == 0


def test_a_slow_body_is_given_up_with_408() -> None:
    status, headers, body = ask(FakeExchange([b"a"] * 100, pause=0.05), ("content-length", "100"), seconds=0.2)
    assert (status, body["code"]) == (408, "request_timeout")
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert headers["x-request-id"] == body["request_id"]


def test_a_refusal_ends_its_line() -> None:
    exchange = FakeExchange()
    door = Gateway(echo, threads=1, body_limit=LIMIT, body_seconds=1.0)
    asyncio.run(door.__rsgi__(FakeScope(FakeHeaders([])), exchange))
    assert exchange.answer is not None
    assert exchange.answer[2].endswith(b"}\n")


@pytest.mark.parametrize("pieces", [[b"", b""], [b'{"url": 1}', b"", b""]])
def test_a_chunked_body_that_broke_off_is_refused_even_where_it_reads_well(pieces: list[bytes]) -> None:
    """As granian hands it over: one empty piece at every end, and one for the chunk that it could not read."""
    status, _, body = ask(FakeExchange(pieces), CHUNKED)
    assert (status, body["code"]) == (400, "malformed_request")
    assert "broken" in body["detail"]


@pytest.mark.parametrize("pieces", [[b""], [b"ab", b"c", b""]])
def test_a_whole_chunked_body_ends_with_one_empty_piece(pieces: list[bytes]) -> None:
    assert ask(FakeExchange(pieces), CHUNKED)[::2] == (
        200,
        {"length": str(len(b"".join(pieces))), "body": b"".join(pieces).decode(), "path": "/"},
    )


def test_large_bodies_on_their_way_share_a_bound() -> None:
    door = Gateway(echo, threads=2, body_limit=gateway.HELD_BYTES * 2, body_seconds=5.0)
    scope = FakeScope(FakeHeaders([("host", "a"), CHUNKED]))
    large = FakeExchange([b"x" * (gateway.HELD_BYTES // 8)] * 16)
    small = FakeExchange([b"x"])
    asyncio.run(door.__rsgi__(scope, large))
    asyncio.run(door.__rsgi__(scope, small))
    assert large.answer is not None
    assert small.answer is not None
    assert large.answer[0] == 503
    assert large.answer[1]["retry-after"]
    assert large.taken == gateway.HELD_BYTES * 2, "the rest is read, so that the sender gets to the answer"
    assert small.answer[0] == 200, "what the refused body held is free again"


def test_a_request_without_host_is_refused() -> None:
    door = Gateway(echo, threads=1, body_limit=LIMIT, body_seconds=1.0)
    exchange = FakeExchange()
    asyncio.run(door.__rsgi__(FakeScope(FakeHeaders([])), exchange))
    assert exchange.answer is not None
    assert exchange.answer[0] == 400


@pytest.mark.parametrize("length", ["", "3,3", "-3", "abc"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    status, _, body = ask(FakeExchange([b"abc"]), ("content-length", length))
    assert (status, body["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("error", [RuntimeError("secret"), ValueError("secret"), LookupError("secret")])
def test_an_application_that_crashes_is_a_500_that_tells_nothing(error: Exception) -> None:
    def crash(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        raise error

    status, _, body = ask(FakeExchange(), application=crash)
    assert (status, body["code"]) == (500, "internal_error")
    assert "secret" not in str(body)


def test_the_answer_is_closed_in_the_thread_that_made_it() -> None:
    closed: list[bool] = []

    class Body(list[bytes]):
        def close(self) -> None:
            closed.append(True)

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Body:
        start_response("201 Created", [])
        return Body([b"[1,", b"2]"])

    assert ask(FakeExchange(), application=application)[::2] == (201, [1, 2])
    assert closed == [True]


def environ(*pairs: tuple[str, str | None], **scope: Any) -> dict[str, Any]:
    return environ_of(FakeScope(FakeHeaders(list(pairs)), **scope))


def test_headers_are_joined_and_named_as_wsgi_has_them() -> None:
    seen = environ(
        ("accept", "a/b"),
        ("accept", "c/d"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("content-type", "x/y"),
        ("x-a", "1"),
    )
    assert seen["HTTP_ACCEPT"] == "a/b,c/d"
    assert seen["HTTP_COOKIE"] == "a=1; b=2"
    assert seen["CONTENT_TYPE"] == "x/y"
    assert seen["HTTP_X_A"] == "1"


def test_a_header_with_an_underscore_cannot_pass_for_another() -> None:
    assert "HTTP_X_API_KEY" not in environ(("x_api_key", "stolen"))


def test_a_value_that_is_not_ascii_stays_wrong_and_does_not_vanish() -> None:
    assert environ(("idempotency-key", None))["HTTP_IDEMPOTENCY_KEY"] == "\xff"


def test_a_path_is_handed_over_as_wsgi_has_it() -> None:
    assert environ(path="/\u20ac")["PATH_INFO"].encode("latin-1").decode() == "/\u20ac"


def large_door(application: Any = echo) -> Gateway:
    return Gateway(application, threads=1, body_limit=LIMIT, body_seconds=5.0, large_bodies={"/many": 4000})


def test_only_the_addresses_with_large_bodies_take_them() -> None:
    lengths = {}
    for path in ("/many", "/many/", "/"):
        exchange = FakeExchange([b"x" * 400] * 10)
        asyncio.run(large_door().__rsgi__(FakeScope(FakeHeaders([("host", "a"), CHUNKED]), path=path), exchange))
        assert exchange.answer is not None
        lengths[path] = json.loads(exchange.answer[2])["length"]
    assert lengths == {"/many": "4000", "/many/": str(LIMIT + 1), "/": str(LIMIT + 1)}


def test_large_bodies_count_until_they_are_answered_and_hold_up_nobody_else() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        if environ["PATH_INFO"] == "/many":
            begun.set()
            assert go_on.wait(10)
        return echo(environ, start_response)

    door = large_door(slow)

    async def both() -> list[tuple[int, int]]:
        scopes = [FakeScope(FakeHeaders([("host", "a"), CHUNKED]), path=path) for path in ("/many", "/")]
        exchanges = [FakeExchange([b"x" * 400] * 2) for _ in scopes]
        first = asyncio.create_task(door.__rsgi__(scopes[0], exchanges[0]))
        await asyncio.to_thread(begun.wait, 10)
        held = door._held
        await door.__rsgi__(scopes[1], exchanges[1])
        go_on.set()
        await first
        assert all(exchange.answer is not None and exchange.answer[0] == 200 for exchange in exchanges)
        return [(held, door._held)]

    assert asyncio.run(both()) == [(800, 0)]


class Doors:
    """An application that lets nobody out before a reader and a writer are inside."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.open = threading.Event()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        self.inside.append(environ["REQUEST_METHOD"])
        if len(set(self.inside)) == 2:
            self.open.set()
        assert self.open.wait(30)
        start_response("200 OK", [])
        return []


@pytest.mark.parametrize(("crowd", "single"), [("GET", "POST"), ("POST", "GET")])
def test_neither_readers_nor_writers_take_all_threads(crowd: str, single: str) -> None:
    application = Doors()
    door = Gateway(application, threads=2, read_threads=2, body_limit=LIMIT, body_seconds=5.0)

    async def send(method: str) -> None:
        await door.__rsgi__(FakeScope(FakeHeaders([("host", "a")]), method=method), FakeExchange())

    async def all_at_once() -> None:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for method in [crowd] * 5 + [single]:
                group.create_task(send(method))

    asyncio.run(all_at_once())
    assert application.inside.index(single) <= 2


def test_reads_wait_a_moment_while_others_write_and_not_otherwise() -> None:
    async def express(environ: WSGIEnvironment) -> gateway.Answer:
        return gateway.Answer(200, [], b"")

    door = Gateway(echo, threads=1, body_limit=LIMIT, body_seconds=5.0, express=express)

    async def send(method: str, times: int) -> float:
        began = time.monotonic()
        for _ in range(times):
            await door.__rsgi__(FakeScope(FakeHeaders([("host", "a")]), method=method), FakeExchange())
        return time.monotonic() - began

    async def in_turn() -> tuple[float, float]:
        alone = await send("GET", 100)
        door._express = None
        await send("POST", 1)
        door._express = express
        return alone, await send("GET", 100)

    alone, beside = asyncio.run(in_turn())
    assert beside >= 100 * gateway.GIVE_WAY_SECONDS > alone


def test_a_short_way_that_fails_leaves_the_answer_to_the_application() -> None:
    async def express(environ: WSGIEnvironment) -> gateway.Answer | None:
        raise RuntimeError("a fault of our own")

    exchange = FakeExchange()
    door = Gateway(echo, threads=1, body_limit=LIMIT, body_seconds=5.0, express=express)
    asyncio.run(door.__rsgi__(FakeScope(FakeHeaders([("host", "a")]), method="GET"), exchange))
    assert exchange.answer is not None
    assert exchange.answer[0] == 200


@pytest.mark.parametrize("status", ["304 Not Modified", "204 No Content"])
def test_an_answer_without_a_body_does_not_say_that_the_body_is_empty(status: str) -> None:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response(status, [("Content-Length", "0"), ("ETag", '"a"')])
        return []

    exchange = FakeExchange()
    door = Gateway(application, threads=1, body_limit=LIMIT, body_seconds=5.0)
    asyncio.run(door.__rsgi__(FakeScope(FakeHeaders([("host", "a")]), method="GET"), exchange))
    assert exchange.answer == (int(status[:3]), {"etag": '"a"'}, b"")

"""Between the web server and Django: the whole body is read before a thread is given to the request.

Django answers in a handful of threads. Were it to read the bodies itself, a few clients that send slowly (or vanish
midway, which no server notices) would hold every thread, and the web role would answer nobody. So bodies come in on
the event loop, each within a size and a time; only then does a thread run Django, by plain WSGI. The server speaks
RSGI (granian's own interface), which has the timeouts and limits of asyncio and none of its cost for Django.

Who reads and who writes have threads of their own, so that callers who ask without pause keep nobody from submitting;
so have the few addresses with large bodies, whose memory counts until they are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from core.encoding import to_json_body
from core.ids import new_id
from core.problems import CONTENT_TYPE, Problem
from core.quota import UNLIMITED
from core.requests import UnreadableHeadError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

DISCARD_BYTES = 16 * 1024 * 1024  # how much of a body that is too large is read and dropped before the answer
DISCARD_SECONDS = 5.0
SMALL_BYTES = 64 * 1024  # a body up to this is read however many others are on their way
GIVE_WAY_SECONDS = 0.005  # how long a read waits while others write
WRITING_SECONDS = 1.0  # for how long after a write others are taken to be writing
HELD_BYTES = 64 * 1024 * 1024  # how much all bodies on their way may hold before larger ones are sent away


_BROKEN_CHUNKS = (
    "The chunked body is broken: a chunk is malformed, a trailer follows, or the body ended before its last chunk."
)

logger = logging.getLogger(__name__)

Header = tuple[str, str]


class Headers(Protocol):
    """The request's headers as RSGI hands them over; `items` leaves out values that are not ASCII."""

    def items(self) -> Iterable[Header]: ...
    def keys(self) -> Iterable[str]: ...
    def get(self, key: str, default: Any = None) -> Any: ...


class Scope(Protocol):
    """The request's head as RSGI hands it over; the path is decoded already."""

    client: str
    server: str
    scheme: str
    method: str
    path: str
    query_string: str
    http_version: str

    @property
    def headers(self) -> Headers: ...


class Exchange(Protocol):
    """RSGI's side of one request: its body comes by iteration, its answer goes by one call."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def response_bytes(self, status: int, headers: list[Header], body: bytes) -> None: ...


class _TooMuchHeldError(Exception):
    """Reading on would take more memory than all bodies together may have."""


class _BrokenChunksError(Exception):
    """A chunked body broke off, so what came of it is not what its sender meant, even where it reads well."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client."""

    status: int
    headers: list[Header]
    body: bytes


Express = Callable[["WSGIEnvironment"], Awaitable[Answer | None]]
"""Answers on the event loop what needs no Django, without ever blocking it; None for all else."""

# Django counts the bytes of these too, but 0 would be a lie about the answer that a 304 stands for (RFC 9110, 8.6).
_WITHOUT_BODY: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Gateway:
    """An RSGI application around a WSGI one: bodies within `body_limit` and `body_seconds`; at once, `threads` requests
    that may write and `read_threads` that only read. `express` is asked first.

    `large_bodies` has the limit of each address whose bodies may be larger: `large_threads` of these requests at once.
    """

    def __init__(
        self,
        application: WSGIApplication,
        *,
        threads: int,
        read_threads: int = 1,
        body_limit: int,
        body_seconds: float,
        express: Express | None = None,
        large_bodies: Mapping[str, int] | None = None,
        large_threads: int = 1,
    ) -> None:
        self._application = application
        self._writers = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._readers = ThreadPoolExecutor(read_threads, thread_name_prefix="read")
        self._large = ThreadPoolExecutor(large_threads, thread_name_prefix="large")
        self._express = express
        self._wrote_at = -math.inf  # monotonic time of the last end of such a request
        self._writing = 0  # requests under way that may write
        self._body_limit = body_limit
        self._large_bodies = large_bodies or {}
        self._body_seconds = body_seconds
        self._held = 0  # bytes of bodies on their way, and of large ones until they are answered

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._writers.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        self._large.shutdown(wait=True)

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        environ = environ_of(scope)
        await self._give_way(environ)
        answer = _refused_head(environ) or await self._by_express(environ) or await self._answered(environ, exchange)
        exchange.response_bytes(answer.status, answer.headers, answer.body)

    async def _give_way(self, environ: WSGIEnvironment) -> None:
        """A caller who asks without pause would take a whole core; one who waits a moment before each answer does not,
        and nobody who asks now and then notices."""
        if environ["REQUEST_METHOD"] not in _READS:
            return
        if self._writing or time.monotonic() - self._wrote_at < WRITING_SECONDS:
            await asyncio.sleep(GIVE_WAY_SECONDS)

    async def _by_express(self, environ: WSGIEnvironment) -> Answer | None:
        if self._express is None:
            return None
        try:
            return await self._express(environ)
        except Exception:
            logger.exception("the short way failed, Django answers")
            return None

    async def _answered(self, environ: WSGIEnvironment, exchange: Exchange) -> Answer:
        try:
            await self._take_body(environ, exchange)
        except TimeoutError:
            return _refusal(environ, HTTPStatus.REQUEST_TIMEOUT, "The request's body did not arrive in time.")
        except _TooMuchHeldError:
            return _refusal(environ, HTTPStatus.SERVICE_UNAVAILABLE, "Too many large bodies are on their way.")
        except _BrokenChunksError:
            return _refusal(environ, HTTPStatus.BAD_REQUEST, _BROKEN_CHUNKS)
        loop = asyncio.get_running_loop()
        if environ["PATH_INFO"] in self._large_bodies:
            with self._holding(int(environ.get("CONTENT_LENGTH", "0"))):
                return await loop.run_in_executor(self._large, self._ask_django, environ)
        if environ["REQUEST_METHOD"] in _READS:
            return await loop.run_in_executor(self._readers, self._ask_django, environ)
        self._writing += 1
        try:
            return await loop.run_in_executor(self._writers, self._ask_django, environ)
        finally:
            self._writing -= 1
            self._wrote_at = time.monotonic()

    @contextlib.contextmanager
    def _holding(self, size: int) -> Iterator[None]:
        self._held += size
        try:
            yield
        finally:
            self._held -= size

    async def _take_body(self, environ: WSGIEnvironment, exchange: Exchange) -> None:
        """Puts the body into `environ`; of one that is too large nothing, which Django refuses.

        Raises TimeoutError, and what `_read` raises.
        """
        declared = environ.get("CONTENT_LENGTH")
        if declared is None and "HTTP_TRANSFER_ENCODING" not in environ:
            return
        limit = self._large_bodies.get(environ["PATH_INFO"], self._body_limit)
        if declared is not None and int(declared) > limit:
            await self._let_sender_finish(environ, exchange, limit)
            return
        async with asyncio.timeout(self._body_seconds):
            body = await self._read(exchange, limit, chunked=declared is None)
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = declared or str(len(body))

    async def _let_sender_finish(self, environ: WSGIEnvironment, exchange: Exchange, limit: int) -> None:
        """Most clients send the whole body before they look at the answer, and miss it when the connection closes."""
        waits_for_leave = "HTTP_EXPECT" in environ
        if waits_for_leave or int(environ["CONTENT_LENGTH"]) > limit + DISCARD_BYTES:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                async for _ in exchange:
                    pass

    async def _read(self, exchange: Exchange, limit: int, *, chunked: bool) -> bytes:
        """The body; of a longer one than `limit` one byte more than that, the rest read and dropped.

        Raises _TooMuchHeldError and _BrokenChunksError.
        """
        kept, seen, empty, refused = bytearray(), 0, 0, False
        try:
            async for piece in exchange:
                seen += len(piece)
                empty += not piece
                if chunked and empty > 1:  # granian ends each body with one empty piece, and has one for a broken chunk
                    raise _BrokenChunksError
                part = b"" if refused else piece[: max(0, limit + 1 - len(kept))]
                kept += part
                self._held += len(part)
                if self._held > HELD_BYTES and len(kept) > SMALL_BYTES:
                    refused = True  # the rest is read and dropped: most senders look at no answer before they are done
                    self._held -= len(kept)
                    kept.clear()
                if seen > limit + DISCARD_BYTES:
                    break
        finally:
            self._held -= len(kept)
        if refused:
            raise _TooMuchHeldError
        return bytes(kept)

    def _ask_django(self, environ: WSGIEnvironment) -> Answer:
        try:
            return _run(self._application, environ)
        except UnreadableHeadError as error:
            logger.warning("a request's head cannot be read: %s", error)
            return _refusal(environ, HTTPStatus.BAD_REQUEST, "The request's address or headers cannot be read.")
        except Exception:
            logger.exception("a request failed outside Django's own handlers")
            return _refusal(environ, HTTPStatus.INTERNAL_SERVER_ERROR)


def _refused_head(environ: WSGIEnvironment) -> Answer | None:
    if environ["SERVER_PROTOCOL"] == "HTTP/1.1" and "HTTP_HOST" not in environ:
        return _refusal(environ, HTTPStatus.BAD_REQUEST, "The Host header is missing.")
    if not environ.get("CONTENT_LENGTH", "0").isdecimal():
        return _refusal(environ, HTTPStatus.BAD_REQUEST, "The Content-Length header is not a number.")
    return None


def _run(application: WSGIApplication, environ: WSGIEnvironment) -> Answer:
    status, headers = 500, list[Header]()

    def start_response(line: str, fields: list[Header], exc_info: Any = None) -> Callable[[bytes], object]:
        nonlocal status, headers
        status, headers = int(line[:3]), fields
        return io.BytesIO().write

    pieces = application(environ, start_response)
    try:
        body = b"".join(pieces)
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()  # gives the database connection back
    if status in _WITHOUT_BODY:
        headers = [field for field in headers if field[0].lower() != "content-length"]
    return Answer(status, headers, body)


def _refusal(environ: WSGIEnvironment, status: HTTPStatus, detail: str = "") -> Answer:
    """A problem for a request that never got to Django."""
    request_id = str(new_id())
    body = to_json_body(Problem.of_status(status, detail).members(environ["PATH_INFO"], request_id))
    headers = [("Content-Type", CONTENT_TYPE), ("X-Request-Id", request_id), ("Connection", "close")]
    headers += UNLIMITED.headers().items()
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append(("Retry-After", "1"))
    return Answer(status, headers, body)


def environ_of(scope: Scope) -> WSGIEnvironment:
    """The request's head as WSGI (PEP 3333) has it. A header with `_` in its name is dropped: it could pass for `-`."""
    client, _, client_port = scope.client.rpartition(":")
    server, _, server_port = scope.server.rpartition(":")
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": scope.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": scope.path.encode("utf-8", "replace").decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "SERVER_NAME": server,
        "SERVER_PORT": server_port,
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "REMOTE_ADDR": client,
        "REMOTE_PORT": client_port,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.scheme,
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    _add_headers(environ, scope.headers)
    return environ


def _add_headers(environ: WSGIEnvironment, headers: Headers) -> None:
    for name, value in headers.items():
        if "_" in name:
            continue
        key = _environ_key(name)
        separator = "; " if name == "cookie" else ","
        environ[key] = f"{environ[key]}{separator}{value}" if key in environ else value
    for name in headers.keys():  # noqa: SIM118  not a mapping
        if "_" not in name:
            # The value was not ASCII. Leaving it out would make a wrong key no key at all.
            environ.setdefault(_environ_key(name), "\xff")


def _environ_key(name: str) -> str:
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"

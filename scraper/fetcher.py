"""One attempt at one URL, from the first lookup to the last byte of the body: `Fetcher.fetch`.

It speaks through httpcore2, the transport inside httpx2: httpx2's client would parse the URL a second time by other
rules, keep cookies, read the environment and follow redirects, none of which may happen here.

Connections are not kept for the next request. Bytes that a server sends after its answer would be read as the
beginning of the next one, which may be another tenant's.
"""

import asyncio
import logging
import ssl
import time
from typing import Final

from jobs.retries import SAFE_TO_REPEAT
from jobs.targets import InvalidTarget, parse_target
from scraper.answers import MAX_CONTENT_TYPE, Answer
from scraper.egress import EgressGuard
from scraper.evidence import DOCUMENT_HEAD_BYTES, charset_evidence
from scraper.exchange import Exchange
from scraper.gates import Gate, NotNow, OpenGate
from scraper.outcomes import FetchFailed, FetchOutcome, FetchRequest
from scraper.redirects import MAX_REDIRECTS, STATUSES, Hop, next_hop
from scraper.robots_reader import RobotsReader, RobotsUnread
from scraper.wire import Wire

logger = logging.getLogger(__name__)

ACCEPT_ENCODING: Final = "gzip, deflate, br, zstd"
CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 120.0
FRAMING_ALLOWANCE: Final = 1024 * 1024
MAX_RETRY_AFTER: Final = 200
GATE_SECONDS: Final = 10.0
"""The longest wait for leave to call one hop's host, in a slot that others could use."""
GATE_MARGIN: Final = 0.1
"""Before the deadline, so that an attempt which only waited is given back and has not failed."""

_OWN_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"}
)
"""Set here or nowhere: a caller's own would change where the request goes or how the answer is to be read."""


class Fetcher:
    """Runs attempts, at most `max_connections` at once; one object per process. Holds nothing between attempts.

    `spool_directory` takes bodies over 1 MiB (None: the system's temporary directory); the rest is Exchange's.
    """

    def __init__(
        self,
        *,
        egress: EgressGuard,
        user_agent: str,
        max_connections: int,
        connect_seconds: float = CONNECT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        http2: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        proxy_ssl_context: ssl.SSLContext | None = None,
        spool_directory: str | None = None,
    ) -> None:
        self._exchange = Exchange(
            egress,
            connect_seconds=connect_seconds,
            silence_seconds=silence_seconds,
            http2=http2,
            ssl_context=ssl_context,
            proxy_ssl_context=proxy_ssl_context,
        )
        self._robots = RobotsReader(self._exchange, user_agent=user_agent, accept_encoding=ACCEPT_ENCODING)
        self._user_agent = user_agent
        self._slots = asyncio.Semaphore(max_connections)
        self._spool_directory = spool_directory
        self.internal_errors = 0
        """Attempts that ended as internal_fetch_error since the start."""

    async def fetch(self, request: FetchRequest, gate: Gate | None = None) -> FetchOutcome:
        """Run one attempt. Every failure is in the outcome; only asyncio.CancelledError is raised.

        The deadline covers everything from the lookup to the body's last byte, not the wait for a free connection.
        `gate` is asked before each hop, the first one included, and hears of each answer.
        """
        async with self._slots:
            wire = Wire()
            outcome = FetchOutcome(final_url=request.url, timings=wire.timings)
            await self._run(request, gate or OpenGate(), wire, outcome)
            outcome.request_sent = wire.request_sent
            if wire.connection:
                outcome.evidence["connection"] = wire.connection
            outcome.timings["total"] = time.perf_counter() - wire.started
            return outcome

    async def aclose(self) -> None:
        """Nothing is open between attempts; cancel the running ones and await them before this."""

    async def _run(self, request: FetchRequest, gate: Gate, wire: Wire, outcome: FetchOutcome) -> None:
        deadline = asyncio.timeout(request.deadline_seconds)
        try:
            async with deadline:
                await self._follow(request, gate, wire, outcome)
        except NotNow as refusal:
            outcome.not_now = refusal
        except FetchFailed as failure:
            _fail(outcome, failure.code, failure.detail)
            if isinstance(failure, RobotsUnread):
                outcome.robots_unread = True
                outcome.retry_after = failure.retry_after and failure.retry_after[:MAX_RETRY_AFTER]
        except asyncio.CancelledError:
            _drop_body(outcome)
            raise
        except Exception as error:  # whatever it is, the job gets an outcome and its retry
            if isinstance(error, TimeoutError) and deadline.expired():
                _fail(outcome, "deadline_exceeded", "The attempt did not end within its deadline.")
                return
            self.internal_errors += 1
            # Without its query, which may hold secrets.
            logger.exception("fetch failed in an unknown way", extra={"url": request.url.partition("?")[0]})
            _fail(outcome, "internal_fetch_error", "The attempt failed for a reason on our side.")

    async def _follow(self, request: FetchRequest, gate: Gate, wire: Wire, outcome: FetchOutcome) -> None:
        hop = self._first_hop(request)
        while True:
            outcome.final_url = hop.target.url
            if request.respect_robots:
                await self._robots.check(hop, request.proxy, gate, lambda: _gate_seconds(request, wire))
            await gate.enter(hop.target.host, within=_gate_seconds(request, wire))
            async with self._exchange.answer(hop, request.proxy, wire) as answer:
                _note_head(answer, outcome)
                gate.answered(answer.status, outcome.retry_after)
                wire.connection["http_version"] = answer.http_version
                if not (request.follow_redirects and answer.status in STATUSES):
                    await self._take(answer, request, wire, outcome)
                    return
                following = next_hop(hop, answer.status, answer.values(b"location"))
            if len(outcome.redirects) == MAX_REDIRECTS:
                raise FetchFailed("too_many_redirects", f"The target redirected more than {MAX_REDIRECTS} times.")
            outcome.redirects.append({"url": hop.target.url, "status": answer.status})
            hop = following

    def _first_hop(self, request: FetchRequest) -> Hop:
        try:
            target = parse_target(request.url)
        except InvalidTarget as error:
            raise FetchFailed("invalid_request", str(error)) from None
        if any(_is_own(name) for name, _ in request.headers):
            raise FetchFailed("invalid_request", "The job sets a header that it may not set.")
        headers = list(request.headers)
        given = {name.lower() for name, _ in headers}
        if "user-agent" not in given:
            headers.append(("User-Agent", self._user_agent))
        if "accept" not in given:
            headers.append(("Accept", "*/*"))
        if "accept-encoding" not in given:  # a range of an encoded body could not be decoded
            headers.append(("Accept-Encoding", "identity" if "range" in given else ACCEPT_ENCODING))
        return Hop(target=target, method=request.method, headers=tuple(headers), body=request.body)

    async def _take(self, answer: Answer, request: FetchRequest, wire: Wire, outcome: FetchOutcome) -> None:
        if 200 <= answer.status < 300:
            # Chunks of one byte come as six on the wire, so framing may double a body and more before it is an attack.
            wire.start_body(2 * request.max_bytes + FRAMING_ALLOWANCE)
            outcome.body = await answer.read_body(request.max_bytes, self._spool_directory)
            outcome.evidence["charset"] = charset_evidence(outcome.content_type, outcome.body.head(DOCUMENT_HEAD_BYTES))
            return
        _fail(outcome, f"http_{answer.status}", f"The server answered with status {answer.status}.")
        wire.start_body(FRAMING_ALLOWANCE)
        outcome.body_snippet = await answer.read_snippet()


def _gate_seconds(request: FetchRequest, wire: Wire) -> float:
    """How long the next hop may wait for its host: all of the deadline where the attempt could not be repeated."""
    left = max(request.deadline_seconds - (time.perf_counter() - wire.started) - GATE_MARGIN, 0.0)
    repeatable = request.method in SAFE_TO_REPEAT or not wire.request_sent
    return min(left, GATE_SECONDS) if repeatable else left


def _fail(outcome: FetchOutcome, code: str, detail: str) -> None:
    """Record the failure, unless one is known: a deadline that passes during a 404's snippet changes nothing."""
    _drop_body(outcome)
    if outcome.error_code is None:
        outcome.error_code = code
        outcome.error_detail = detail


def _drop_body(outcome: FetchOutcome) -> None:
    """A deadline or a stop can still come between the body's last byte and the end of the attempt."""
    if outcome.body is not None:
        outcome.body.close()
        outcome.body = None


def _note_head(answer: Answer, outcome: FetchOutcome) -> None:
    outcome.http_status = answer.status
    outcome.headers = answer.kept_headers()
    outcome.content_type = (answer.first(b"content-type") or "")[:MAX_CONTENT_TYPE]
    outcome.evidence["charset"] = charset_evidence(outcome.content_type, b"")
    if answer.status in (429, 503):
        retry_after = answer.first(b"retry-after")
        outcome.retry_after = retry_after and retry_after[:MAX_RETRY_AFTER]


def _is_own(name: str) -> bool:
    lowered = name.lower()
    return lowered in _OWN_HEADERS or lowered.startswith("proxy-")

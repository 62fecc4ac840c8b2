"""Reads the robots.txt of a request's host and says whether the request may be made (RFC 9309).

It comes by the same way as the page: gate, guard, proxy and caps. What 4xx answers is allowed; what cannot be read is
forbidden for now: a temporary error, until attempts run out (endings.py).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from core.proxies import Proxy
from jobs.error_codes import is_temporary
from jobs.targets import parse_target
from scraper.answers import Answer
from scraper.exchange import Exchange
from scraper.gates import Gate
from scraper.outcomes import FetchFailed
from scraper.proxying import ProxyFailed
from scraper.redirects import STATUSES, Hop, next_hop
from scraper.robots import BIG_CHARACTERS, MAX_BYTES, RobotsFile
from scraper.robots_cache import Reading, RobotsCache
from scraper.wire import Wire

MAX_REDIRECTS: Final = 5
"""RFC 9309 2.3.1.2: followed across hosts; after more there are no rules."""
HOP_SECONDS: Final = 10.0
FRAMING_ALLOWANCE: Final = 1024 * 1024
ACCEPT: Final = "text/plain, */*;q=0.1"


class RobotsUnread(FetchFailed):
    """The host did not tell its rules: nothing may be fetched (RFC 9309 2.3.1.4), as far as is known now.

    The code is the temporary one of what went wrong, else blocked_by_robots.
    """

    def __init__(self, code: str, detail: str, retry_after: str | None = None) -> None:
        super().__init__(code, detail)
        self.retry_after = retry_after


class RobotsReader:
    """One object per process; used inside one event loop."""

    def __init__(self, exchange: Exchange, *, user_agent: str, accept_encoding: str) -> None:
        self._exchange = exchange
        self._headers = (("User-Agent", user_agent), ("Accept", ACCEPT), ("Accept-Encoding", accept_encoding))
        self._cache = RobotsCache()

    async def check(self, hop: Hop, proxy: Proxy | None, gate: Gate, within: Callable[[], float]) -> None:
        """Return if the request of `hop` may be made. `within` says how long the gate may be waited for.

        Raises FetchFailed (blocked_by_robots, or why it is not known) and NotNow.
        """
        target = hop.target
        # Through a proxy the answer is the proxy's word, which counts for nobody who does not use it.
        key = (target.scheme, target.host, proxy)
        reading = await self._cache.reading(key, lambda: self._read(hop, proxy, gate, within))
        if reading.unread is not None:
            raise RobotsUnread(*reading.unread)
        if reading.file is None:
            return
        judge = reading.file.refusal
        refusal = await asyncio.to_thread(judge, target) if reading.file.is_big else judge(target)
        if refusal is not None:
            raise FetchFailed("blocked_by_robots", refusal)

    async def _read(self, hop: Hop, proxy: Proxy | None, gate: Gate, within: Callable[[], float]) -> Reading:
        wire = Wire()
        try:
            file = await self._fetch(hop, proxy, gate, within, wire)
        except ProxyFailed:
            raise  # that is no word of the host's
        except FetchFailed as failure:
            if not wire.request_sent:
                raise  # the page could not be reached either, for the same reason
            code = failure.code if is_temporary(failure.code) else "blocked_by_robots"
            detail = f"The robots.txt of {hop.target.host} cannot be read: {failure.detail}"
            return Reading(unread=(code, detail, failure.retry_after if isinstance(failure, RobotsUnread) else None))
        if proxy is None:
            gate.slow_down(hop.target.host, 0.0 if file is None else file.crawl_delay)
        return Reading(file)

    async def _fetch(
        self, hop: Hop, proxy: Proxy | None, gate: Gate, within: Callable[[], float], wire: Wire
    ) -> RobotsFile | None:
        """The rules, or None where there are none."""
        place = parse_target(f"{hop.target.origin}/robots.txt")
        hop = Hop(target=place, method="GET", headers=self._headers, body=b"")
        for _ in range(MAX_REDIRECTS + 1):
            await gate.enter(hop.target.host, within=within())
            async with _in_time(), self._exchange.answer(hop, proxy, wire) as answer:
                retry_after = answer.first(b"retry-after")
                gate.answered(answer.status, retry_after)
                if answer.status not in STATUSES:
                    return await _rules(answer, wire, retry_after)
                try:
                    hop = next_hop(hop, answer.status, answer.values(b"location"))
                except FetchFailed:  # leads nowhere
                    return None
        return None


@contextlib.asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """A host that only hangs must not use up the whole attempt, and is not waited for by each attempt anew."""
    limit = asyncio.timeout(HOP_SECONDS)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise FetchFailed("read_timeout", "It did not come in time.") from None
        raise


async def _rules(answer: Answer, wire: Wire, retry_after: str | None) -> RobotsFile | None:
    if 200 <= answer.status < 300:
        wire.start_body(2 * MAX_BYTES + FRAMING_ALLOWANCE)
        body, whole = await answer.read_beginning(MAX_BYTES)
        if len(body) > BIG_CHARACTERS:
            return await asyncio.to_thread(RobotsFile, body, whole=whole)
        return RobotsFile(body, whole=whole)
    if 300 <= answer.status < 500:
        return None
    raise RobotsUnread(f"http_{answer.status}", f"The server answered with status {answer.status}.", retry_after)

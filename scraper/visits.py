"""An attempt's way through the limiter, and the admission of jobs by their hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from jobs.retries import parse_retry_after
from jobs.transitions import ClaimTicket, Postponed
from scraper.politeness import Denial, Grant, Limiter, Verdict

LONGEST_POSTPONED: Final = 60.0  # a block may be lifted; meanwhile the dispatcher holds the job back by itself
SHORTEST_POSTPONED: Final = 0.1
OVERLOAD: Final = frozenset({429, 503})


class Visit:
    """The gate of one attempt: it holds one connection at a time, first that of `grant`, until `leave`."""

    def __init__(self, limiter: Limiter, grant: Grant) -> None:
        self._limiter = limiter
        self._grant: Grant | None = grant  # until the first request is sent
        self._host = grant.host
        self._member = grant.member
        self._since = grant.at
        self._verdict = Verdict.UNUSED
        self._held = True
        self._blocks: list[asyncio.Task[None]] = []

    async def enter(self, host: str, *, within: float) -> None:
        """Gate.enter: the first request goes by the grant, unless that is too old or the host was blocked since."""
        grant, self._grant = self._grant, None
        if host == self._host:
            if grant is None or grant.stale or self._limiter.blocked_here(host):
                self._verdict = Verdict.NONE
                await self._limiter.enter(host, self._member, within=within, unused=grant is not None)
        else:
            self.leave()
            self._host, self._member, self._held = host, self._limiter.new_member(), True
            await self._limiter.enter(host, self._member, within=within)
        self._verdict, self._since = Verdict.NONE, time.monotonic()

    def answered(self, status: int, retry_after: str | None) -> None:
        """Gate.answered: an answer that asks for peace blocks the host at once, before its body is read."""
        if status not in OVERLOAD:
            self._verdict = Verdict.SERVED if status < 500 else Verdict.NONE
            return
        seconds = parse_retry_after(retry_after, now=datetime.now(tz=UTC))
        if seconds:
            block = self._limiter.block(self._host, seconds, by=f"http_{status}")
            self._blocks.append(self._limiter.later(block))
        else:
            self._verdict = Verdict.OVERLOADED

    def slow_down(self, host: str, seconds: float) -> None:
        """Gate.slow_down, for everybody who calls the host."""
        self._limiter.slow_down(host, seconds)

    def leave(self) -> None:
        """Pass.leave: the limiter hears what the answer has told of the host; an unused grant is given back."""
        if self._held:
            self._held = False
            seconds = max(time.monotonic() - self._since, 0.0)
            self._limiter.release(self._host, self._member, self._verdict, seconds=seconds)
            self._verdict = Verdict.NONE

    async def settled(self) -> None:
        """Pass.settled: the blocks that came of it are written down."""
        if self._blocks:
            await asyncio.gather(*self._blocks)


class HostAdmission:
    """Admits jobs whose host may be called now (`scraper.feeding.Admission`)."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        # A broker may hand the same message out twice; each has a grant of its own.
        self._admitted: dict[ClaimTicket, list[Grant]] = {}

    async def start(self) -> None:
        """Begin to talk to Redis and PostgreSQL."""
        await self._limiter.start()

    async def close(self) -> None:
        """Tell what is to be told, and leave."""
        await self._limiter.close()

    async def admit(self, tickets: Sequence[ClaimTicket]) -> tuple[Sequence[ClaimTicket], Sequence[Postponed]]:
        """Those that may go, and those that go back to the backlog; waits while Redis is away."""
        admitted: list[ClaimTicket] = []
        postponed: list[Postponed] = []
        answers = await self._limiter.acquire([ticket.host for ticket in tickets])
        for ticket, answer in zip(tickets, answers, strict=True):
            if isinstance(answer, Denial):
                seconds = min(max(answer.seconds, SHORTEST_POSTPONED), LONGEST_POSTPONED)
                postponed.append(Postponed(ticket, seconds, answer.reason))
            else:
                self._admitted.setdefault(ticket, []).append(answer)
                admitted.append(ticket)
        return admitted, postponed

    def visit(self, ticket: ClaimTicket) -> Visit:
        """The gate of an admitted ticket's attempt, which begins."""
        return Visit(self._limiter, self._pop(ticket))

    def release(self, ticket: ClaimTicket) -> None:
        """An admitted ticket could not be claimed."""
        grant = self._pop(ticket)
        self._limiter.release(grant.host, grant.member, Verdict.UNUSED)

    def _pop(self, ticket: ClaimTicket) -> Grant:
        grants = self._admitted[ticket]
        grant = grants.pop()
        if not grants:
            del self._admitted[ticket]
        return grant

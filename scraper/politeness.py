"""The limiter: which request may go to which host now, for all workers and tenants together.

Its memory is in Redis (`politeness.lua`): what a host may be asked for, who is connected to it, until when it asked for
peace. Each process tells there twice a second which connections it holds. Without Redis nothing goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.db import Error as DatabaseError

from jobs.hosts import LIMITER_PREFIX, HostLimits
from scraper.gates import NotNow
from scraper.grouping import Grouper
from scraper.host_records import HostRecords
from scraper.limiter_link import Epoch, LimiterAway, LimiterLink, Step

KEEP_SECONDS: Final = 0.5
GUARD_SECONDS: Final = 0.25  # GUARD of politeness.lua: an older leave is not good any more
PAUSED_SECONDS: Final = 5.0  # until it is worth asking again for a host that an operator paused
AWAY_SECONDS: Final = 2.0
OWN_BLOCK_SECONDS: Final = 1.0  # for which what was allowed before a block is held back here
STATES_AT_ONCE: Final = 500
KEPT_STEPS: Final = 10_000
GRANTED, CLOSED, AWAY = "granted", "closed", "away"  # answers that are no reason to wait for the host

logger = logging.getLogger(__name__)


class Verdict(StrEnum):
    """What a request has told of its host."""

    SERVED = "served"
    OVERLOADED = "overloaded"  # 429 or 503 that names no time
    NONE = "none"
    UNUSED = "unused"  # it was never sent; its token comes back


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to send one request to `host` now. `member` names its connection in Redis; `at` is the monotonic time just
    before it was asked for."""

    host: str
    member: str
    at: float

    @property
    def stale(self) -> bool:
        """Whether it is so old that others may meet it at the target."""
        return time.monotonic() - self.at > GUARD_SECONDS


@dataclass(frozen=True, slots=True)
class Denial:
    """The host may not be called for `seconds`, and why, as in `waiting_on`."""

    reason: str
    seconds: float


class Limiter:
    """Used inside one event loop. `process` is a name that no other process has or had; `prefix` begins every key."""

    def __init__(self, records: HostRecords, *, url: str, process: str, prefix: str = LIMITER_PREFIX) -> None:
        self._records = records
        self._link = LimiterLink(url, prefix)
        self._process = process
        self._numbers = itertools.count(1)
        # One call at a time: a connection that is let go could otherwise be told as held a moment later.
        self._calls: Grouper[Sequence[Step], tuple[Epoch, list[Any]]] = Grouper(self._run)
        self._opened = asyncio.Event()
        self._held: dict[str, str] = {}  # members, with their hosts
        self._unsent: list[Step] = []  # what Redis could not be told yet
        self._own_blocks: dict[str, float] = {}  # by host, the monotonic time at which it ends
        self._untold: set[str] = set()  # hosts whose block Redis may not know
        self._work: set[asyncio.Task[None]] = set()
        self._restoring: asyncio.Task[None] | None = None
        self._chores: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to keep and to watch; what asks before Redis and PostgreSQL have answered waits."""
        self._chores = [asyncio.create_task(self._records.watch()), asyncio.create_task(self._keep())]

    async def close(self) -> None:
        """Tell what is still to be told, then leave."""
        with contextlib.suppress(LimiterAway, TimeoutError):
            async with asyncio.timeout(AWAY_SECONDS):
                await asyncio.gather(*self._work, return_exceptions=True)
                await self._keep_once()
        chores = [*self._chores, *self._work, *filter(None, [self._restoring])]
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await self._link.close()
        await self._records.close()

    # --- asking ---------------------------------------------------------------------------------------------------

    async def acquire(self, hosts: Sequence[str]) -> list[Grant | Denial]:
        """Leave for one request to each of `hosts`, or why not, in order. Waits for as long as Redis is away."""
        while True:
            await self._opened.wait()
            answers = await self._try(hosts)
            if answers is not None:
                return answers

    async def enter(self, host: str, member: str, *, within: float, unused: bool = False) -> None:
        """Wait up to `within` seconds for leave to send a request to `host` over the connection `member`, which is
        taken if it is not held yet. `unused` gives the token of an earlier leave back. Raises NotNow."""
        ends = time.monotonic() + within
        while True:
            answer = await self._ask_once(host, member, max(ends - time.monotonic(), 0.0), unused)
            if answer.reason == GRANTED:
                return
            if answer.seconds > ends - time.monotonic():
                raise NotNow("host_rate" if answer.reason in (CLOSED, AWAY) else answer.reason, answer.seconds)
            unused = unused and answer.reason not in (AWAY, "host_rate")  # these may have taken it back
            await asyncio.sleep(answer.seconds)

    def release(self, host: str, member: str, verdict: Verdict, *, seconds: float = 0.0) -> None:
        """The connection is closed, `seconds` after it was granted. Returns at once."""
        self._held.pop(member, None)
        self.later(self._tell([["release", host, member, verdict.value, seconds, self._limits(host)]]))

    def new_member(self) -> str:
        """A name for one connection."""
        return f"{self._process}:{next(self._numbers)}"

    def blocked_here(self, host: str) -> float:
        """Seconds for which `host` is blocked by an answer that this process has just seen; else 0."""
        return max(self._own_blocks.get(host, 0.0) - time.monotonic(), 0.0)

    async def block(self, host: str, seconds: float, *, by: str) -> None:
        """The host asked for peace: nobody calls it for `seconds`; `by` is the error code of its answer.

        Redis knows at once; returns when it is written down.
        """
        ends = max(time.monotonic() + seconds, self._own_blocks.get(host, 0.0))
        self._own_blocks[host] = ends
        await self._tell_block(host)
        await self._records.block(host, seconds, by=by)
        # Had Redis lost it in between, what it was given back from PostgreSQL would not hold it.
        await self._tell_block(host)
        asyncio.get_running_loop().call_later(OWN_BLOCK_SECONDS, self._forget_own_block, host, ends)

    def later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have it done in the background; `close` waits a moment for it."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def slow_down(self, host: str, seconds: float) -> None:
        """The robots.txt of `host` asks for so many seconds between two requests; it gets them when policies are next
        read. Returns at once."""
        self.later(self._records.record_crawl_delay(host, seconds))

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _try(self, hosts: Sequence[str]) -> list[Grant | Denial] | None:
        at = time.monotonic()
        answers = [self._known_denial(host) or Grant(host, self.new_member(), at) for host in hosts]
        grants = [answer for answer in answers if isinstance(answer, Grant)]
        if not grants:
            return answers
        steps: list[Step] = [["acquire", g.host, g.member, self._limits(g.host), 0, False] for g in grants]
        try:
            _, values = await self._calls.submit(steps)
        except (LimiterAway, asyncio.CancelledError) as error:
            for grant in grants:  # it may have been granted
                self._unsent.append(
                    ["release", grant.host, grant.member, Verdict.UNUSED.value, 0, self._limits(grant.host)]
                )
            if isinstance(error, asyncio.CancelledError):
                raise
            return None
        if values[0][0] == CLOSED:
            self._opened.clear()
            return None
        told = iter(values)
        return [self._judged(answer, next(told)) if isinstance(answer, Grant) else answer for answer in answers]

    def _judged(self, grant: Grant, value: list[Any]) -> Grant | Denial:
        word, seconds = value
        if word != GRANTED:
            return Denial(word, seconds)
        self._held[grant.member] = grant.host
        return grant

    async def _ask_once(self, host: str, member: str, longest: float, unused: bool) -> Denial:
        """One try; a Denial with the reason GRANTED is none."""
        denial = self._known_denial(host)
        if denial is not None:
            return denial
        if not self._opened.is_set():
            return Denial(CLOSED, KEEP_SECONDS)
        try:
            _, values = await self._calls.submit([["acquire", host, member, self._limits(host), longest, unused]])
        except LimiterAway:
            return Denial(AWAY, KEEP_SECONDS)
        word, seconds = values[0]
        if word == CLOSED:
            return Denial(CLOSED, KEEP_SECONDS)
        if word == GRANTED:
            self._held[member] = host
            return await self._wait_for_token(host, seconds) if seconds > 0 else Denial(GRANTED, 0.0)
        return Denial(word, seconds)

    async def _wait_for_token(self, host: str, seconds: float) -> Denial:
        """The token is good in `seconds`; the host may have asked for peace by then."""
        await asyncio.sleep(seconds)
        try:
            _, values = await self._calls.submit([["look", host]])
        except LimiterAway:
            return Denial(AWAY, KEEP_SECONDS)
        return Denial("host_blocked", values[0]) if values[0] > 0 else Denial(GRANTED, 0.0)

    def _known_denial(self, host: str) -> Denial | None:
        if self._records.policies is not None and self._records.policies.limits_of(host).paused:
            return Denial("host_paused", PAUSED_SECONDS)
        seconds = self.blocked_here(host)
        return Denial("host_blocked", seconds) if seconds > 0 else None

    def _limits(self, host: str) -> dict[str, Any]:
        assert self._records.policies is not None  # noqa: S101  nothing is opened before they are known
        return _document(self._records.policies.limits_of(host))

    async def _tell(self, steps: list[Step]) -> None:
        try:
            _, values = await self._calls.submit(steps)
        except LimiterAway:
            self._unsent = [*self._unsent, *steps][-KEPT_STEPS:]
        else:
            await self._note_paces(steps, values)

    async def _note_paces(self, steps: Sequence[Step], values: Sequence[Any]) -> None:
        for step, value in zip(steps, values, strict=True):
            if step[0] == "release" and value is not False:
                logger.info("%s is called at %.3f of its rate", step[1], value)
                await self._records.record_pace(step[1], value)

    async def _tell_block(self, host: str) -> None:
        try:
            await self._calls.submit([["block", host, self.blocked_here(host)]])
        except LimiterAway:
            self._untold.add(host)

    def _forget_own_block(self, host: str, ends: float) -> None:
        if host in self._untold and ends > time.monotonic():
            asyncio.get_running_loop().call_later(OWN_BLOCK_SECONDS, self._forget_own_block, host, ends)
        elif self._own_blocks.get(host) == ends:
            del self._own_blocks[host]
            self._untold.discard(host)

    # --- keeping --------------------------------------------------------------------------------------------------

    async def _run(self, items: Sequence[Sequence[Step]]) -> list[tuple[Epoch, list[Any]]]:
        """Many callers' steps as one call."""
        try:
            epoch, values = await self._link.run([step for steps in items for step in steps])
        except LimiterAway as error:
            if self._opened.is_set():
                logger.warning("nothing is fetched until the limiter answers again: %s", error)
            self._opened.clear()
            raise
        told = iter(values)
        return [(epoch, list(itertools.islice(told, len(steps)))) for steps in items]

    async def _keep(self) -> None:
        while True:
            seconds = KEEP_SECONDS
            try:
                epoch = await self._keep_once()
            except LimiterAway:
                pass
            else:
                self._heed(epoch)
                seconds = min(KEEP_SECONDS, epoch.seconds or KEEP_SECONDS)
            await asyncio.sleep(seconds)

    async def _keep_once(self) -> Epoch:
        """Tell Redis that this process lives, what it holds, and what could not be told before."""
        held: dict[str, list[str]] = {}
        for member, host in self._held.items():
            held.setdefault(host, []).append(member)
        unsent, self._unsent = self._unsent, []
        untold = set(self._untold)
        steps: list[Step] = [["keep", held], *unsent, *(["block", host, self.blocked_here(host)] for host in untold)]
        try:
            epoch, values = await self._calls.submit(steps)
        except LimiterAway:
            self._unsent = [*unsent, *self._unsent][-KEPT_STEPS:]
            raise
        self._untold -= untold
        self.later(self._note_paces(unsent, values[1 : 1 + len(unsent)]))  # the next keep cannot wait for a database
        return epoch

    def _heed(self, epoch: Epoch) -> None:
        if not epoch.restored and self._restoring is None:
            self._restoring = asyncio.create_task(self._restore(epoch))
        if epoch.open and self._records.policies is not None:
            if not self._opened.is_set():
                logger.info("the limiter is open")
            self._opened.set()
        else:
            self._opened.clear()

    async def _restore(self, epoch: Epoch) -> None:
        """Give a new epoch what PostgreSQL remembers."""
        try:
            states = [[h, s.blocked_seconds, s.pace] for h, s in (await self._records.active_states()).items()]
            for first in range(0, max(len(states), 1), STATES_AT_ONCE):
                last = first + STATES_AT_ONCE >= len(states)
                await self._calls.submit([["restore", epoch.name, states[first : first + STATES_AT_ONCE], last]])
        except (DatabaseError, LimiterAway) as error:
            logger.warning("blocks and paces of hosts not restored yet: %s", type(error).__name__)
        finally:
            self._restoring = None


def _document(limits: HostLimits) -> dict[str, Any]:
    return {
        "rate": limits.rate,
        "burst": limits.burst,
        "concurrency": limits.concurrency,
        "adaptive": limits.adaptive,
    }

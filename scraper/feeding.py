"""Feeds the engine: while a slot is free it pulls messages, claims their jobs and hands them over to be run.

The messages are acknowledged right after the claim; from then on the lease in the database says whose job it is.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from jobs.transitions import ClaimTicket, Postponed
from scraper.gates import OpenGate, Pass
from scraper.ledger import Held, Ledger, LedgerClosing

# Messages to a statement of claims: one turn of the weights. Among themselves these claims have no order, and with any
# order 100 claims in a row stay within 5 of 60 : 30 : 10.
AT_ONCE: Final = 10
POLL_SECONDS: Final = (0.02, 0.5)  # between two looks at empty queues: at first, and when nothing has come for long
RECONNECT_SECONDS: Final = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stopping(Exception):
    """No more jobs are taken."""


class Source(Protocol):
    """Where messages come from, for one thread. What was pulled is in hand until it is settled or given back."""

    def pull(self, at_most: int) -> list[ClaimTicket]:
        """Up to `at_most` tickets, fewer when there are no more. Raises whatever the transport raises."""

    def settle(self) -> None:
        """All in hand has been dealt with. Never raises."""

    def give_back(self) -> None:
        """All in hand returns to where it came from. Never raises."""

    def close(self) -> None:
        """Give back and leave."""


class Admission(Protocol):
    """Says which jobs may go now, as far as their hosts are concerned; called inside the engine's loop."""

    async def start(self) -> None:
        """Called once, before all else."""

    async def close(self) -> None:
        """Called once, after all attempts have ended."""

    async def admit(self, tickets: Sequence[ClaimTicket]) -> tuple[Sequence[ClaimTicket], Sequence[Postponed]]:
        """Those that may go, and those that go back to the backlog. May wait; is cancelled when the worker stops."""

    def release(self, ticket: ClaimTicket) -> None:
        """An admitted ticket could not be claimed."""

    def visit(self, ticket: ClaimTicket) -> Pass:
        """The pass of an admitted ticket whose job was claimed: its attempt begins."""


class AdmitAll:
    """No limits."""

    async def admit(self, tickets: Sequence[ClaimTicket]) -> tuple[Sequence[ClaimTicket], Sequence[Postponed]]:
        """All of them."""
        return tickets, ()

    def release(self, ticket: ClaimTicket) -> None:
        """Nothing was held."""

    def visit(self, ticket: ClaimTicket) -> Pass:
        """One that lets everything through."""
        return OpenGate()

    async def start(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """Nothing to end."""


class Slots:
    """Room for `count` attempts; used inside the loop by one taker."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._freed = asyncio.Event()

    async def take(self, at_most: int) -> int:
        """Wait until a slot is free, then take up to `at_most`; returns how many."""
        while self._free == 0:
            self._freed.clear()
            await self._freed.wait()
        taken = min(self._free, at_most)
        self._free -= taken
        return taken

    def give(self, count: int = 1) -> None:
        """They are free again."""
        self._free += count
        self._freed.set()


class Feeder:
    """The only one who takes slots. `run` is a task of the engine's loop and ends some time after `refuse`.

    `ready` waits until attempts can be made at all; `start` is given what was claimed, its ticket and whether the job
    was cancelled meanwhile.
    """

    def __init__(
        self,
        source: Source,
        ledger: Ledger,
        *,
        slots: Slots,
        admission: Admission,
        ready: Callable[[], Awaitable[None]],
        start: Callable[[Held, ClaimTicket, bool], None],
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._slots = slots
        self._admission = admission
        self._ready = ready
        self._start = start
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pull")
        self._claiming: dict[uuid.UUID, bool] = {}  # True: cancelled meanwhile
        self._arrived = asyncio.Event()
        self._poll_seconds = POLL_SECONDS[0]
        self._stopping = False
        self._task: asyncio.Task[Any] | None = None  # while it may be interrupted

    def wake(self) -> None:
        """There may be messages."""
        self._arrived.set()

    def cancel(self, job_id: uuid.UUID) -> None:
        """If the job is being claimed, let it be known when it is started."""
        if job_id in self._claiming:
            self._claiming[job_id] = True

    def refuse(self) -> None:
        """Take nothing from now on."""
        self._stopping = True
        self._ledger.refuse()
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Feed until `refuse`; what is in hand then goes back."""
        while not self._stopping:
            try:
                await self._feed()
            except (Stopping, LedgerClosing):
                break
            except Exception:
                # Whatever it was, a worker that lives and takes no jobs would be worse.
                logger.exception("taking jobs goes on after an error")
                await asyncio.sleep(RECONNECT_SECONDS)
        await self._in_thread(self._source.close)
        self._thread.shutdown(wait=False)

    async def _feed(self) -> None:
        with self._interruptible():
            await self._ready()
            room = await self._slots.take(AT_ONCE)
        started = 0
        try:
            self._arrived.clear()
            tickets = await self._pull(room)
            if tickets:
                started = await self._start_claimed(tickets)
        finally:
            self._slots.give(room - started)
        if tickets is None:
            with self._interruptible():
                await asyncio.sleep(RECONNECT_SECONDS)
        elif len(tickets) < room:
            await self._rest(found=bool(tickets))

    async def _pull(self, room: int) -> list[ClaimTicket] | None:
        try:
            return await self._in_thread(self._source.pull, room)
        except Exception as error:  # noqa: BLE001  each transport has errors of its own
            logger.warning("holding off, the broker does not answer: %s", type(error).__name__)
            return None

    async def _start_claimed(self, tickets: Sequence[ClaimTicket]) -> int:
        """Returns how many of them were started. When it cannot be known whose they are, they go back."""
        self._claiming = dict.fromkeys((ticket.job_id for ticket in tickets), False)
        admitted: Sequence[ClaimTicket] = ()
        held: Sequence[Held | None] = ()
        try:
            with self._interruptible():
                await self._ready()  # it may have taken a while until there were messages
                admitted, postponed = await self._admission.admit(tickets)
            if postponed:
                await self._ledger.put_back(postponed)
            if admitted:
                held = await self._ledger.claim(admitted)
        except BaseException:
            await self._in_thread(self._source.give_back)
            for ticket in admitted:
                self._admission.release(ticket)
            raise
        self._thread.submit(self._source.settle)  # before the next pull, and nobody need wait for it
        cancelled, self._claiming = self._claiming, {}
        started = 0
        for ticket, job in zip(admitted, held, strict=True):
            if job is None:
                self._admission.release(ticket)
            else:
                self._start(job, ticket, cancelled[ticket.job_id])
                started += 1
        return started

    async def _rest(self, *, found: bool) -> None:
        """Nothing more waits: until a notice says so, or the next look is due."""
        shortest, longest = POLL_SECONDS
        self._poll_seconds = shortest if found else min(2 * self._poll_seconds, longest)
        with self._interruptible(), suppress(TimeoutError):
            async with asyncio.timeout(self._poll_seconds):
                await self._arrived.wait()
                self._poll_seconds = shortest

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """What is waited for inside may be cut off by `refuse`. Raises Stopping."""
        if self._stopping:
            raise Stopping
        self._task = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            raise Stopping from None
        finally:
            self._task = None

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

"""The engine's way to the database: claims, heartbeats and endings, grouped into few statements, in threads of their
own, holding off while the database does not answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, connection, connections

from jobs import counters, leases, notices, transitions
from jobs.transitions import ClaimedJob, ClaimTicket, Ending, Postponed
from scraper import endings
from scraper.grouping import Grouper

OUTAGE_SECONDS = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class LedgerClosing(Exception):
    """No claim could be made before the engine had to stop."""


class Written(Enum):
    """What became of an ending."""

    YES = "written"
    TOO_LATE = "the claim was no longer ours; nothing was written"
    UNKNOWN = "the database did not answer for as long as the lease lasts"


@dataclass(frozen=True, slots=True)
class Held:
    """A job that is ours. `since` is the monotonic time just before the claim that succeeded: the lease runs from then
    on, however long claims had to wait for the database before."""

    job: ClaimedJob
    since: float


class Ledger:
    """Used inside the engine's loop; `worker` is the name that the rows carry. Times in seconds."""

    def __init__(self, *, worker: str, slots: int, lease_seconds: float, executors: Sequence[str]) -> None:
        self._worker = worker
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._executors = executors
        self._closing = False
        # Claims have a thread of their own, so that taking jobs never waits for a slow finish, nor the other way round.
        self._claim_thread = ThreadPoolExecutor(1, thread_name_prefix="claims")
        # Heartbeats and endings share one: two statements over the same rows in different orders would deadlock.
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="endings")
        self._endings: Grouper[Ending, Written] = Grouper(self._finish_group)

    async def claim(self, tickets: Sequence[ClaimTicket]) -> list[Held | None]:
        """For each ticket its job, if that is still to be had, by one statement.

        Waits out an outage; raises LedgerClosing when told to close meanwhile.
        """
        claimed, since = await self._insist(
            lambda: transitions.claim(tickets, worker=self._worker, executors=self._executors)
        )
        # Of two messages for one job only the first gets it; the other must not start a second attempt.
        jobs = [claimed.pop(ticket.job_id, None) for ticket in tickets]
        return [None if job is None else Held(job, since) for job in jobs]

    async def put_back(self, postponed: Sequence[Postponed]) -> None:
        """Return jobs to the backlog before they are claimed. Waits, and raises, as `claim` does."""
        await self._insist(lambda: transitions.put_back(postponed))

    async def finish(self, ending: Ending) -> Written:
        """Write an ending, for as long as the lease may last."""
        return await self._endings.submit(ending)

    async def renew(self, claims: Sequence[leases.Claim]) -> leases.Renewal:
        """One heartbeat. Raises django's database Error."""
        return await _call(self._write_thread, lambda: leases.renew(claims, worker=self._worker, slots=self._slots))

    def refuse(self) -> None:
        """Claims that wait for the database give up."""
        self._closing = True

    async def close(self) -> None:
        """The process leaves the pool."""
        try:
            await _call(self._write_thread, leases.forget_process, self._worker)
        except DatabaseError as error:
            logger.warning("still listed as a worker process: %s", type(error).__name__)
        for thread in (self._claim_thread, self._write_thread):
            await _call(thread, connections.close_all)
            thread.shutdown(wait=False)

    async def _insist(self, call: Callable[[], T]) -> tuple[T, float]:
        """The answer to `call`, and the monotonic time just before the try that was answered."""
        while True:
            since = time.monotonic()
            try:
                return await _call(self._claim_thread, call), since
            except DatabaseError as error:
                if self._closing:
                    raise LedgerClosing from error
                logger.warning("holding off, no claim possible: %s", type(error).__name__)
                await asyncio.sleep(OUTAGE_SECONDS)

    async def _finish_group(self, group: Sequence[Ending]) -> list[Written]:
        give_up_at = time.monotonic() + self._lease_seconds
        unsure = False
        while True:
            try:
                done = await _call(self._write_thread, _finish, group, unsure)
            except (OperationalError, InterfaceError) as error:
                if time.monotonic() > give_up_at:
                    logger.error("%s endings not written, their leases run out: %s", len(group), error)
                    return [Written.UNKNOWN] * len(group)
                logger.warning("endings not written yet: %s", type(error).__name__)
                unsure = True
                await asyncio.sleep(OUTAGE_SECONDS)
            except DatabaseError as error:
                return await self._finish_one_by_one(group, error)
            else:
                notices.work_waits()
                return [Written.YES if (e.job_id, e.claim_no) in done else Written.TOO_LATE for e in group]

    async def _finish_one_by_one(self, group: Sequence[Ending], error: DatabaseError) -> list[Written]:
        """One ending that the database refuses must not take its group down with it."""
        if len(group) > 1:
            return [(await self._finish_group([ending]))[0] for ending in group]
        logger.error("the database refuses the ending of job %s: %s", group[0].job_id, error)
        bare = endings.without_evidence(group[0])
        if bare == group[0]:
            return [Written.UNKNOWN]
        return await self._finish_group([bare])


def _finish(group: Sequence[Ending], unsure: bool) -> set[leases.Claim]:
    """Write the endings; after a try whose answer was lost, what that try wrote counts as well."""
    done = transitions.finish(group)
    if unsure:
        done |= transitions.ended_claims([(ending.job_id, ending.claim_no) for ending in group])
    counters.add(counters.STALE_ATTEMPTS, len(group) - len(done))
    return done


async def _call(thread: ThreadPoolExecutor, call: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, _with_connection, call, *arguments)


def _with_connection(call: Callable[..., T], *arguments: object) -> T:
    """The thread keeps its connection: taking one from the pool each time would double the round trips."""
    try:
        return call(*arguments)
    except BaseException:
        connection.close()  # it may be what failed; the next call gets another
        raise

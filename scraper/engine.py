"""The worker's engine: one event loop in a thread of its own runs up to `slots` attempts at once.

Celery's threads hand messages to `take()`, which answers once the job is claimed, so that the message can be
acknowledged. From then on the lease in the database, renewed by heartbeats, is what says whose job it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, close_old_connections

from jobs import leases, transitions, wakeup
from jobs.retries import Backoff
from jobs.transitions import ClaimedJob, ClaimTicket, Ending
from results.storage import ResultStore, StorageUnavailable, result_key
from scraper import endings
from scraper.fetcher import Fetcher
from scraper.grouping import Grouper
from scraper.outcomes import BodyFile, FetchOutcome, FetchRequest

MISSED_HEARTBEATS = 3  # in a row, and the process stops its attempts itself, before any lease can run out
OUTAGE_SECONDS = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class EngineStopping(Exception):
    """The engine takes no more jobs; the message belongs back on the bus."""


class Stop(Enum):
    """Why a running attempt is stopped midway."""

    CANCELLED = "the caller cancelled the job"
    LOST = "the lease is no longer ours"
    UNRENEWED = "three heartbeats in a row were not answered"
    SHUTDOWN = "the process shuts down"


class Written(Enum):
    """What became of an ending."""

    YES = "written"
    TOO_LATE = "the claim was no longer ours; nothing was written"
    UNKNOWN = "the database did not answer for as long as the lease lasts"


@dataclass(slots=True, eq=False)
class RunningAttempt:
    """One slot in use. `renewed_at` is the monotonic time of the last write that extended the lease."""

    job: ClaimedJob
    renewed_at: float
    task: asyncio.Task[None] | None = None
    stop: Stop | None = None
    ending: bool = False  # its outcome is being written; too late to stop it

    def halt(self, why: Stop) -> None:
        """Stop the attempt unless it is already ending."""
        if self.stop is None and not self.ending and self.task is not None:
            self.stop = why
            self.task.cancel()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Times in seconds."""

    worker: str
    slots: int
    heartbeat_seconds: float
    lease_seconds: float
    backoff: Backoff
    executors: tuple[str, ...] = ("http",)
    draw: Callable[[], float] = field(default=random.random)


class Engine:
    """Runs attempts from claim to finish. `start` and `stop` are called once each, `take` from any thread between."""

    def __init__(self, config: EngineConfig, *, make_fetcher: Callable[[], Fetcher]) -> None:
        self._config = config
        self._make_fetcher = make_fetcher
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        # Claims have a thread of their own, so that taking jobs never waits for a slow finish, nor the other way round.
        self._claim_thread = ThreadPoolExecutor(1, thread_name_prefix="claims")
        # Heartbeats and finishes share one: two statements over the same rows in different orders would deadlock.
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="finishes")
        self._claims: Grouper[ClaimTicket, ClaimedJob | None] = Grouper(self._claim_group)
        self._finishes: Grouper[Ending, Written] = Grouper(self._finish_group)
        self._running: dict[leases.Claim, RunningAttempt] = {}
        self._waiting_for_slot: set[asyncio.Task[bool]] = set()
        self._stopping = False
        self.stale_attempts = 0

    # --- from other threads -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the loop and the heartbeat."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._set_up(), self._loop).result()

    def take(self, ticket: ClaimTicket) -> bool:
        """Wait for a free slot, then claim the job and start its attempt.

        Returns False when the job is not to be had (any more). Raises EngineStopping when the engine shuts down.
        """
        return asyncio.run_coroutine_threadsafe(self._take(ticket), self._loop).result()

    def refuse(self) -> None:
        """Take nothing from now on; who waits for a slot gets EngineStopping."""
        self._loop.call_soon_threadsafe(self._refuse)

    def stop(self, grace_seconds: float) -> None:
        """Let running attempts go on for `grace_seconds`, then give the rest back; returns when all is written."""
        asyncio.run_coroutine_threadsafe(self._shut_down(grace_seconds), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._claim_thread.shutdown()
        self._write_thread.shutdown()

    # --- inside the loop: life cycle ------------------------------------------------------------------------------------

    async def _set_up(self) -> None:
        self._slots = asyncio.Semaphore(self._config.slots)
        self._store = ResultStore()
        self._fetcher = self._make_fetcher()
        self._chores = [asyncio.create_task(self._beat()), asyncio.create_task(self._watch_leases())]

    def _refuse(self) -> None:
        self._stopping = True
        for task in self._waiting_for_slot:
            task.cancel()

    async def _shut_down(self, grace_seconds: float) -> None:
        self._refuse()
        await self._wait_for_attempts(grace_seconds)
        for attempt in list(self._running.values()):
            attempt.halt(Stop.SHUTDOWN)
        await self._wait_for_attempts(self._config.lease_seconds)
        for chore in self._chores:
            chore.cancel()
        await self._fetcher.aclose()
        await self._loop.run_in_executor(None, self._store.close)
        await self._in_database(self._write_thread, leases.forget_process, self._config.worker)

    async def _wait_for_attempts(self, seconds: float) -> None:
        tasks = [attempt.task for attempt in self._running.values() if attempt.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    # --- inside the loop: claim, run, finish ----------------------------------------------------------------------------

    async def _take(self, ticket: ClaimTicket) -> bool:
        await self._slot()
        asked_at = time.monotonic()
        try:
            job = await self._claims.submit(ticket)
        except BaseException:
            self._slots.release()
            raise
        if job is None:
            self._slots.release()
            return False
        attempt = RunningAttempt(job, renewed_at=asked_at)
        self._running[job.job_id, job.claim_no] = attempt
        attempt.task = asyncio.create_task(self._run(attempt))
        return True

    async def _slot(self) -> None:
        if self._stopping:
            raise EngineStopping
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine of the loop runs in a task
        self._waiting_for_slot.add(task)
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            raise EngineStopping from None
        finally:
            self._waiting_for_slot.discard(task)

    async def _run(self, attempt: RunningAttempt) -> None:
        job = attempt.job
        try:
            ending = await self._attempt(attempt)
        except asyncio.CancelledError:
            ending = self._stopped_midway(attempt)
        except Exception:
            logger.exception("attempt %s of job %s broke", job.attempts, job.job_id)
            broken = FetchOutcome(error_code="internal_fetch_error", error_detail="The worker met an error of its own.")
            broken.request_sent = True
            ending = self._failed(job, broken)
        try:
            await self._finish(attempt, ending)
        finally:
            del self._running[job.job_id, job.claim_no]
            self._slots.release()

    async def _attempt(self, attempt: RunningAttempt) -> Ending:
        job = attempt.job
        outcome = await self._fetcher.fetch(
            FetchRequest(
                url=job.url,
                method=job.method,
                headers=tuple(job.headers.items()),
                body=job.body,
                deadline_seconds=job.deadline_seconds,
                max_bytes=job.max_bytes,
                follow_redirects=job.follow_redirects,
            )
        )
        if outcome.error_code is not None or outcome.body is None:
            return self._failed(job, outcome)
        with outcome.body as body:
            return await self._store_result(job, outcome, body)

    async def _store_result(self, job: ClaimedJob, outcome: FetchOutcome, body: BodyFile) -> Ending:
        key = result_key(job.tenant_id, job.job_id, job.claim_no)
        upload = asyncio.create_task(self._store.upload(key, body))
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            # An upload that goes on unseen would leave an object that no row names.
            await asyncio.wait([upload])
            await self._delete(key)
            raise
        except StorageUnavailable as error:
            outcome.error_code = "storage_unavailable"
            outcome.error_detail = "The response could not be stored."
            logger.warning("result of job %s not stored: %s", job.job_id, error)
            return self._failed(job, outcome)
        return endings.succeeded(job, outcome, endings.StoredResult(key, body.size, body.sha256))

    def _failed(self, job: ClaimedJob, outcome: FetchOutcome) -> Ending:
        return endings.failed(
            job, outcome, now=datetime.now(tz=UTC), draw=self._config.draw(), backoff=self._config.backoff
        )

    def _stopped_midway(self, attempt: RunningAttempt) -> Ending:
        logger.info("job %s stopped midway: %s", attempt.job.job_id, attempt.stop.value if attempt.stop else "?")
        if attempt.stop is Stop.CANCELLED:
            return endings.cancelled(attempt.job)
        reason = "worker_shutdown" if attempt.stop is Stop.SHUTDOWN else "lease_lost"
        return endings.released(attempt.job, reason=reason, may_have_been_sent=True)

    async def _finish(self, attempt: RunningAttempt, ending: Ending) -> None:
        attempt.ending = True
        written = await self._finishes.submit(ending)
        if written is Written.TOO_LATE:
            self.stale_attempts += 1
            logger.warning("job %s: claim %s came too late, discarded", ending.job_id, ending.claim_no)
            if ending.result_key:
                await self._delete(ending.result_key)

    async def _delete(self, key: str) -> None:
        try:
            await self._store.delete(key)
        except StorageUnavailable as error:
            logger.warning("object of a discarded attempt stays behind: %s", error)

    # --- inside the loop: heartbeats --------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            held = list(self._running.values())
            try:
                await self._renew(held)
            except DatabaseError as error:
                logger.warning("heartbeat failed: %s", type(error).__name__)
            await asyncio.sleep(self._config.heartbeat_seconds)

    async def _renew(self, held: list[RunningAttempt]) -> None:
        asked_at = time.monotonic()
        claims = [(attempt.job.job_id, attempt.job.claim_no) for attempt in held]
        answer = await self._in_database(
            self._write_thread,
            lambda: leases.renew(claims, worker=self._config.worker, slots=self._config.slots),
        )
        for claim, attempt in zip(claims, held, strict=True):
            if claim in answer.cancelled:
                attempt.halt(Stop.CANCELLED)
            elif claim not in answer.held:
                attempt.halt(Stop.LOST)
            attempt.renewed_at = asked_at

    async def _watch_leases(self) -> None:
        """Stops what was not renewed in time, by this process's own monotonic clock, whatever the database does."""
        limit = MISSED_HEARTBEATS * self._config.heartbeat_seconds
        while True:
            await asyncio.sleep(self._config.heartbeat_seconds / 4)
            for attempt in list(self._running.values()):
                if time.monotonic() - attempt.renewed_at > limit:
                    attempt.halt(Stop.UNRENEWED)

    # --- the database, in threads -----------------------------------------------------------------------------------------

    async def _claim_group(self, tickets: Sequence[ClaimTicket]) -> list[ClaimedJob | None]:
        while True:
            try:
                claimed = await self._in_database(
                    self._claim_thread,
                    lambda: transitions.claim(tickets, worker=self._config.worker, executors=self._config.executors),
                )
            except DatabaseError as error:
                if self._stopping:
                    raise EngineStopping from error
                logger.warning("holding off, no claim possible: %s", type(error).__name__)
                await asyncio.sleep(OUTAGE_SECONDS)
                continue
            # Of two messages for one job only the first gets it; the other must not start a second attempt.
            return [claimed.pop(ticket.job_id, None) for ticket in tickets]

    async def _finish_group(self, group: Sequence[Ending]) -> list[Written]:
        give_up_at = time.monotonic() + self._config.lease_seconds
        unsure = False
        while True:
            try:
                done = await self._in_database(self._write_thread, _finish, group, unsure)
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
                wakeup.notify()
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

    async def _in_database(self, thread: ThreadPoolExecutor, call: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(thread, _with_connection, call, *arguments)


def _finish(group: Sequence[Ending], unsure: bool) -> set[leases.Claim]:
    """Write the endings; after a try whose answer was lost, what that try wrote counts as well."""
    done = transitions.finish(group)
    if unsure:
        done |= transitions.ended_claims([(ending.job_id, ending.claim_no) for ending in group])
    return done


def _with_connection(call: Callable[..., T], *arguments: object) -> T:
    try:
        return call(*arguments)
    finally:
        close_old_connections()

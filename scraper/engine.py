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
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from django.db import Error as DatabaseError

from jobs import leases
from jobs.retries import Backoff
from jobs.transitions import ClaimedJob, ClaimTicket, Ending
from results.storage import ResultStore, StorageUnavailable, result_key
from scraper import endings
from scraper.cancels import CancelWatch
from scraper.fetcher import Fetcher
from scraper.ledger import Ledger, LedgerClosing, Written
from scraper.outcomes import BodyFile, FetchOutcome, FetchRequest

CLEAN_UP_SECONDS = 5.0  # for deletions under way when the engine stops
PROBE_SECONDS = 1.0  # between two questions to a storage that was away

logger = logging.getLogger(__name__)


class EngineStopping(Exception):
    """The engine takes no more jobs; the message belongs back on the bus."""


class Stop(Enum):
    """Why a running attempt is stopped midway."""

    CANCELLED = "the caller cancelled the job"
    LOST = "the lease is no longer ours"
    UNRENEWED = "three heartbeats in a row were not answered"
    SHUTDOWN = "the process shuts down"


@dataclass(slots=True, eq=False)
class RunningAttempt:
    """One slot in use. `renewed_at` is the monotonic time of the last write that extended the lease."""

    job: ClaimedJob
    renewed_at: float
    task: asyncio.Task[None] | None = None  # from claim to finish; never cancelled, or the slot would be lost
    work: asyncio.Task[Ending] | None = None  # the part that can be stopped midway
    stop: Stop | None = None
    object_left: bool = False  # what was uploaded may lie in storage without a result that names it

    def halt(self, why: Stop) -> None:
        """Stop the attempt; too late while its ending is being written."""
        if self.stop is None:
            self.stop = why
            if self.work is not None:
                self.work.cancel()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Times in seconds. `draw` gives uniform numbers in [0, 1) for the jitter of retries."""

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
        self._ledger = Ledger(
            worker=config.worker, slots=config.slots, lease_seconds=config.lease_seconds, executors=config.executors
        )
        self._running: dict[leases.Claim, RunningAttempt] = {}
        self._waiting_for_slot: set[asyncio.Task[bool]] = set()
        self._claiming: dict[uuid.UUID, bool] = {}  # jobs whose claim is asked for; True: cancelled meanwhile
        self._cancels = CancelWatch(self.cancel)
        self._stopping = False
        self._could_hear_since = time.monotonic()
        self._clean_ups: set[asyncio.Task[None]] = set()
        self._storage_probe: asyncio.Task[None] | None = None  # there while the storage is away
        self.stale_attempts = 0

    # --- from other threads -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the loop and the heartbeat."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._set_up(), self._loop).result()
        self._cancels.start()

    def take(self, ticket: ClaimTicket) -> bool:
        """Wait for a free slot, then claim the job and start its attempt.

        Returns False when the job is not to be had (any more). Raises EngineStopping when the engine shuts down.
        """
        return asyncio.run_coroutine_threadsafe(self._take(ticket), self._loop).result()

    def cancel(self, job_id: uuid.UUID) -> None:
        """Stop the job midway if it runs here."""
        self._loop.call_soon_threadsafe(self._cancel, job_id)

    def silent_for(self) -> float:
        """Seconds in which a slot was free and no message came; 0 while no slot is free, or a message in hand waits
        for the database or the storage to come back."""
        if self._claiming or len(self._running) >= self._config.slots:
            return 0.0
        return time.monotonic() - self._could_hear_since

    def refuse(self) -> None:
        """Take nothing from now on; who waits for a slot gets EngineStopping."""
        self._loop.call_soon_threadsafe(self._refuse)

    def stop(self, grace_seconds: float) -> None:
        """Let running attempts go on for `grace_seconds`, then give the rest back; returns when all is written."""
        asyncio.run_coroutine_threadsafe(self._shut_down(grace_seconds), self._loop).result()
        self._cancels.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- inside the loop: life cycle ----------------------------------------------------------------------------------

    async def _set_up(self) -> None:
        self._slots = asyncio.Semaphore(self._config.slots)
        self._store = ResultStore()
        self._fetcher = self._make_fetcher()
        self._chores = [asyncio.create_task(self._beat()), asyncio.create_task(self._watch_leases())]

    def _refuse(self) -> None:
        self._stopping = True
        self._ledger.refuse()
        for task in self._waiting_for_slot:
            task.cancel()

    async def _shut_down(self, grace_seconds: float) -> None:
        self._refuse()
        await self._wait_for_attempts(grace_seconds)
        for attempt in list(self._running.values()):
            attempt.halt(Stop.SHUTDOWN)
        await self._wait_for_attempts(self._config.lease_seconds)
        if self._clean_ups:
            await asyncio.wait(self._clean_ups, timeout=CLEAN_UP_SECONDS)
        chores = [*self._chores, *self._clean_ups, *filter(None, [self._storage_probe])]
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await self._fetcher.aclose()
        await self._loop.run_in_executor(None, self._store.close)
        await self._ledger.close()

    async def _wait_for_attempts(self, seconds: float) -> None:
        tasks = [attempt.task for attempt in self._running.values() if attempt.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    # --- inside the loop: claim, run, finish --------------------------------------------------------------------------

    async def _take(self, ticket: ClaimTicket) -> bool:
        self._could_hear_since = time.monotonic()
        await self._slot()
        self._claiming.setdefault(ticket.job_id, False)
        try:
            await self._storage_back()
            held = await self._ledger.claim(ticket)
        except LedgerClosing:
            self._slots.release()
            raise EngineStopping from None
        except BaseException:
            self._slots.release()
            raise
        finally:
            cancelled_meanwhile = self._claiming.pop(ticket.job_id, False)
            self._could_hear_since = time.monotonic()
        if held is None:
            self._slots.release()
            return False
        stop = Stop.CANCELLED if cancelled_meanwhile else None
        attempt = RunningAttempt(held.job, renewed_at=held.since, stop=stop)
        self._running[held.job.job_id, held.job.claim_no] = attempt
        attempt.task = asyncio.create_task(self._run(attempt))
        return True

    async def _storage_back(self) -> None:
        """Hold off while there is nowhere to put a response: a fetch would use up an attempt and the target's patience.

        Raises LedgerClosing when told to close meanwhile.
        """
        while self._storage_probe is not None:
            if self._stopping:
                raise LedgerClosing
            await asyncio.wait([self._storage_probe], timeout=PROBE_SECONDS)

    async def _probe_storage(self) -> None:
        logger.warning("holding off, the storage does not answer")
        while True:
            try:
                await self._store.ping()
            except StorageUnavailable:
                await asyncio.sleep(PROBE_SECONDS)
            else:
                self._storage_probe = None
                return

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
        attempt.work = asyncio.create_task(self._attempt(attempt))
        if attempt.stop is not None:
            attempt.work.cancel()
        try:
            ending = await attempt.work
        except asyncio.CancelledError:
            ending = self._stopped_midway(attempt)
        except Exception:
            logger.exception("attempt %s of job %s broke", job.attempts, job.job_id)
            ending = self._failed(
                job,
                FetchOutcome(
                    error_code="internal_fetch_error",
                    error_detail="The worker met an error of its own.",
                    request_sent=True,
                ),
            )
        try:
            await self._finish(replace(ending, object_left=attempt.object_left))
        finally:
            if self._slots.locked():
                self._could_hear_since = time.monotonic()
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
            return await self._store_result(attempt, outcome, body)

    async def _store_result(self, attempt: RunningAttempt, outcome: FetchOutcome, body: BodyFile) -> Ending:
        job = attempt.job
        key = result_key(job.tenant_id, job.job_id, job.claim_no)
        upload = asyncio.create_task(self._store.upload(key, body))
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            # The slot does not wait for a storage that may hang: what arrives is deleted behind it, or by the sweeper.
            attempt.object_left = True
            self._later(self._delete_after(upload, key))
            raise
        except StorageUnavailable as error:
            outcome.error_code = "storage_unavailable"
            outcome.error_detail = "The response could not be stored."
            logger.warning("result of job %s not stored: %s", job.job_id, error)
            attempt.object_left = True  # an upload that timed out may have arrived all the same
            if self._storage_probe is None:
                self._storage_probe = asyncio.create_task(self._probe_storage())
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

    async def _finish(self, ending: Ending) -> None:
        if await self._ledger.finish(ending) is Written.TOO_LATE:
            self.stale_attempts += 1
            logger.warning("job %s: claim %s came too late, discarded", ending.job_id, ending.claim_no)
            if ending.result_key:
                self._later(self._delete(ending.result_key))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._clean_ups.add(task)
        task.add_done_callback(self._clean_ups.discard)

    async def _delete_after(self, upload: asyncio.Task[None], key: str) -> None:
        await asyncio.gather(upload, return_exceptions=True)
        await self._delete(key)

    async def _delete(self, key: str) -> None:
        """What the storage does not delete now, the sweeper finds by the attempt's row."""
        try:
            await self._store.delete(key)
        except StorageUnavailable as error:
            logger.warning("object of a discarded attempt stays behind: %s", error)

    def _cancel(self, job_id: uuid.UUID) -> None:
        if job_id in self._claiming:
            self._claiming[job_id] = True
        for (running_id, _), attempt in self._running.items():
            if running_id == job_id:
                attempt.halt(Stop.CANCELLED)

    # --- inside the loop: heartbeats ----------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            try:
                await self._renew(list(self._running.values()))
            except DatabaseError as error:
                logger.warning("heartbeat failed: %s", type(error).__name__)
            await asyncio.sleep(self._config.heartbeat_seconds)

    async def _renew(self, held: list[RunningAttempt]) -> None:
        asked_at = time.monotonic()
        claims = [(attempt.job.job_id, attempt.job.claim_no) for attempt in held]
        answer = await self._ledger.renew(claims)
        for claim, attempt in zip(claims, held, strict=True):
            if claim in answer.cancelled:
                attempt.halt(Stop.CANCELLED)
            elif claim not in answer.held:
                attempt.halt(Stop.LOST)
            attempt.renewed_at = asked_at

    async def _watch_leases(self) -> None:
        """Stops what was not renewed in time, by this process's own monotonic clock, whatever the database does."""
        limit = leases.MISSED_HEARTBEATS * self._config.heartbeat_seconds
        while True:
            await asyncio.sleep(self._config.heartbeat_seconds / 4)
            for attempt in list(self._running.values()):
                if time.monotonic() - attempt.renewed_at > limit:
                    attempt.halt(Stop.UNRENEWED)

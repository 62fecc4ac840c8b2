"""The worker's engine: one event loop in a thread of its own runs up to `slots` attempts at once.

The feeder claims jobs and starts them here. From then on the lease in the database, renewed by heartbeats, is what says
whose job it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum

from django.db import Error as DatabaseError

from core.proxies import InvalidProxy, unseal_proxy
from jobs import leases
from jobs.retries import Backoff
from jobs.transitions import ClaimedJob, ClaimTicket, Ending
from results.storage import StorageUnavailable, result_key
from scraper import endings
from scraper.feeding import Admission, AdmitAll, Feeder, Slots, Source
from scraper.fetcher import Fetcher
from scraper.gates import Pass
from scraper.ledger import Held, Ledger, Written
from scraper.listening import NoticeWatch
from scraper.outcomes import BodyFile, FetchOutcome, FetchRequest
from scraper.uploads import Uploads

logger = logging.getLogger(__name__)


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
    gate: Pass
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
    """Runs attempts from claim to finish; `start` and `stop` are called once each.

    `source` gives the messages, and is used by one thread; `admission` says which of them may go now.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        source: Source,
        make_fetcher: Callable[[], Fetcher],
        admission: Admission | None = None,
    ) -> None:
        self._config = config
        self._source = source
        self._make_fetcher = make_fetcher
        self._admission = admission or AdmitAll()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._ledger = Ledger(
            worker=config.worker, slots=config.slots, lease_seconds=config.lease_seconds, executors=config.executors
        )
        self._running: dict[leases.Claim, RunningAttempt] = {}
        self._notices = NoticeWatch(stop_job=self.cancel, wake=self._wake)
        self.stale_attempts = 0

    # --- from other threads -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the loop and the heartbeat, then take jobs."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._set_up(), self._loop).result()
        self._notices.start()
        self._loop.call_soon_threadsafe(self._take_jobs)

    def cancel(self, job_id: uuid.UUID) -> None:
        """Stop the job midway if it runs here."""
        self._loop.call_soon_threadsafe(self._cancel, job_id)

    def refuse(self) -> None:
        """Take nothing from now on; messages in hand go back."""
        self._loop.call_soon_threadsafe(self._feeder.refuse)

    def stop(self, grace_seconds: float) -> None:
        """Let running attempts go on for `grace_seconds`, then give the rest back; returns when all is written."""
        asyncio.run_coroutine_threadsafe(self._shut_down(grace_seconds), self._loop).result()
        self._notices.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._feeder.wake)

    # --- inside the loop: life cycle ----------------------------------------------------------------------------------

    async def _set_up(self) -> None:
        self._slots = Slots(self._config.slots)
        self._uploads = Uploads()
        self._fetcher = self._make_fetcher()
        await self._admission.start()
        self._feeder = Feeder(
            self._source,
            self._ledger,
            slots=self._slots,
            admission=self._admission,
            ready=self._uploads.ready,
            start=self._start,
        )
        self._chores = [asyncio.create_task(self._beat()), asyncio.create_task(self._watch_leases())]

    def _take_jobs(self) -> None:
        self._feeding = asyncio.create_task(self._feeder.run())

    async def _shut_down(self, grace_seconds: float) -> None:
        self._feeder.refuse()
        await self._feeding
        await self._wait_for_attempts(grace_seconds)
        for attempt in list(self._running.values()):
            attempt.halt(Stop.SHUTDOWN)
        await self._wait_for_attempts(self._config.lease_seconds)
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._uploads.close()
        await self._fetcher.aclose()
        await self._admission.close()
        await self._ledger.close()

    async def _wait_for_attempts(self, seconds: float) -> None:
        tasks = [attempt.task for attempt in self._running.values() if attempt.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    # --- inside the loop: run, finish ---------------------------------------------------------------------------------

    def _start(self, held: Held, ticket: ClaimTicket, cancelled: bool) -> None:
        stop = Stop.CANCELLED if cancelled else None
        attempt = RunningAttempt(held.job, self._admission.visit(ticket), renewed_at=held.since, stop=stop)
        self._running[held.job.job_id, held.job.claim_no] = attempt
        attempt.task = asyncio.create_task(self._run(attempt))

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
            attempt.gate.leave()  # one that was stopped before it began has not
            del self._running[job.job_id, job.claim_no]
            self._slots.give()

    async def _attempt(self, attempt: RunningAttempt) -> Ending:
        job = attempt.job
        outcome = await self._fetch(job, attempt.gate)
        if outcome.not_now is not None:
            return endings.postponed(job, outcome, outcome.not_now)
        if outcome.error_code is not None or outcome.body is None:
            return self._failed(job, outcome)
        with outcome.body as body:
            return await self._store_result(attempt, outcome, body)

    async def _fetch(self, job: ClaimedJob, gate: Pass) -> FetchOutcome:
        try:
            proxy = unseal_proxy(job.proxy) if job.proxy else None
        except InvalidProxy as error:
            return FetchOutcome(error_code="invalid_request", error_detail=str(error))
        request = FetchRequest(
            url=job.url,
            method=job.method,
            headers=tuple(job.headers.items()),
            body=job.body,
            deadline_seconds=job.deadline_seconds,
            max_bytes=job.max_bytes,
            follow_redirects=job.follow_redirects,
            proxy=proxy,
            respect_robots=job.respect_robots,
        )
        try:
            outcome = await self._fetcher.fetch(request, gate)
        finally:
            gate.leave()
        await gate.settled()
        return outcome

    async def _store_result(self, attempt: RunningAttempt, outcome: FetchOutcome, body: BodyFile) -> Ending:
        job = attempt.job
        key = result_key(job.tenant_id, job.job_id, job.claim_no)
        try:
            await self._uploads.upload(key, body)
        except asyncio.CancelledError:
            attempt.object_left = True  # an upload that was cut off may arrive all the same
            raise
        except StorageUnavailable as error:
            outcome.error_code = "storage_unavailable"
            outcome.error_detail = "The response could not be stored."
            logger.warning("result of job %s not stored: %s", job.job_id, error)
            attempt.object_left = True  # as may one that timed out
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
                self._uploads.delete_later(ending.result_key)

    def _cancel(self, job_id: uuid.UUID) -> None:
        self._feeder.cancel(job_id)
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

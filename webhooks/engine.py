"""The delivery engine of an events process: one event loop in a thread of its own runs many tries at once.

The rows say what is due and whose try it is; here is only who may go now, so that a receiver that hangs holds no thread
and nobody else up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from django.db import DataError, IntegrityError, connection, connections
from django.db import Error as DatabaseError

from core.sealing import SealBroken
from jobs.retries import parse_retry_after
from scraper.grouping import Grouper
from webhooks import claims
from webhooks.claims import Claimed, Ended
from webhooks.destinations import Destinations, Due
from webhooks.events import EventType, Status
from webhooks.schedule import next_delay
from webhooks.sender import Sender, TryOutcome
from webhooks.signing import live_secrets, signed_headers

POLL_SECONDS: Final = 0.5
"""How late a try may begin that nobody announced: a second one, a replay, or what another process made."""
OUTAGE_SECONDS: Final = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`draw` gives uniform numbers in [0, 1) for the jitter of the schedule."""

    poll_seconds: float = POLL_SECONDS
    draw: Callable[[], float] = field(default=random.random)


class DeliveryEngine:
    """Takes what is due and tries it; `start` and `stop` are called once each, `wake` by whoever made a delivery."""

    def __init__(self, make_sender: Callable[[], Sender], config: EngineConfig | None = None) -> None:
        self._make_sender = make_sender
        self._config = config or EngineConfig()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="deliveries", daemon=True)
        self._claim_thread = ThreadPoolExecutor(1, thread_name_prefix="delivery claims")
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="delivery endings")
        self._destinations = Destinations()
        self._under_way: dict[tuple[uuid.UUID, int], asyncio.Task[None]] = {}
        self._stopping = False

    # --- from other threads -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._set_up(), self._loop).result()

    def wake(self) -> None:
        """Something may be due."""
        self._loop.call_soon_threadsafe(self._set_awake)

    def stop(self, grace_seconds: float) -> None:
        """Let tries that are under way go on for `grace_seconds`, then give the rest back."""
        asyncio.run_coroutine_threadsafe(self._shut_down(grace_seconds), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- inside the loop: life cycle ----------------------------------------------------------------------------------

    async def _set_up(self) -> None:
        self._awake = asyncio.Event()
        self._sender = self._make_sender()
        self._endings: Grouper[Ended, bool] = Grouper(self._record)
        self._taking = asyncio.create_task(self._take())

    def _set_awake(self) -> None:
        self._awake.set()

    async def _shut_down(self, grace_seconds: float) -> None:
        self._stopping = True
        self._awake.set()
        await self._taking
        if self._under_way:
            await asyncio.wait(list(self._under_way.values()), timeout=grace_seconds)
        left = dict(self._under_way)
        for task in left.values():
            task.cancel()
        await asyncio.gather(*left.values(), return_exceptions=True)
        if left:
            await self._give_back(list(left))
        for thread in (self._claim_thread, self._write_thread):
            await self._call(thread, connections.close_all)
            thread.shutdown(wait=False)

    async def _give_back(self, left: list[tuple[uuid.UUID, int]]) -> None:
        try:
            await self._call(self._write_thread, lambda: claims.release(left))
        except DatabaseError as error:
            logger.warning("%s tries come back when their leases end: %s", len(left), type(error).__name__)

    # --- inside the loop: take, try, record ---------------------------------------------------------------------------

    async def _take(self) -> None:
        after = ""
        while not self._stopping:
            self._awake.clear()
            try:
                after, found = await self._pass(after)
            except DatabaseError as error:
                logger.warning("holding off, no delivery can be claimed: %s", type(error).__name__)
                await asyncio.sleep(OUTAGE_SECONDS)
                continue
            except Exception:
                logger.exception("a look at what is due broke")  # the next one may not; without it nothing is sent
                await asyncio.sleep(OUTAGE_SECONDS)
                continue
            if not found and (not after or self._destinations.is_full()):
                await self._rest()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._config.poll_seconds):
                await self._awake.wait()
        except TimeoutError:
            return

    async def _pass(self, after: str) -> tuple[str, bool]:
        """One look at the destinations behind `after`; where the next one begins, and whether any try was begun."""
        if self._destinations.is_full():
            return after, False
        shut = self._destinations.shut(now=time.monotonic())
        seen = await self._call(self._claim_thread, lambda: claims.look(after, shut))
        chosen = self._destinations.choose(seen.due, now=time.monotonic())
        if not chosen:
            return seen.after, False
        for claimed in await self._call(self._claim_thread, lambda: claims.claim(chosen)):
            one = Due(str(claimed.id), claimed.destination, str(claimed.tenant_id))
            self._destinations.enter(one)
            self._under_way[claimed.id, claimed.claim_no] = asyncio.create_task(self._run(claimed, one))
        # Where there was no room for all, the next look goes on behind the last one that got some.
        return (chosen[-1].destination if self._destinations.is_full() else seen.after), True

    async def _run(self, claimed: Claimed, one: Due) -> None:
        well: bool | None = None
        try:
            try:
                ended, well = await self._try_somehow(claimed)
            finally:
                self._destinations.leave(one, well=well, now=time.monotonic())
            if not await self._endings.submit(ended):
                logger.warning("delivery %s: claim %s came too late, discarded", ended.id, ended.claim_no)
        finally:
            del self._under_way[claimed.id, claimed.claim_no]
            self._awake.set()

    async def _try_somehow(self, claimed: Claimed) -> tuple[Ended, bool | None]:
        """A fault of our own uses up a try like any other: it must not come back with each lease for ever."""
        try:
            return await self._try(claimed)
        except Exception:
            logger.exception("a try of delivery %s broke", claimed.id)
            detail = "The try failed for a reason on our side."
            return self._failed(claimed, TryOutcome(0, error_code="internal_error", error_detail=detail)), None

    async def _try(self, claimed: Claimed) -> tuple[Ended, bool | None]:
        """The ending, and whether the receiver is well: None where it was not asked."""
        if claimed.endpoint_deleted:
            return _untried(claimed, "endpoint_deleted", "The endpoint was deleted."), None
        if claimed.endpoint_disabled and claimed.event_type != EventType.TEST:
            return _untried(claimed, "endpoint_disabled", "The endpoint is disabled; replay once it is enabled."), None
        try:
            secrets = live_secrets(claimed.secret, claimed.previous_secret, claimed.previous_expires_at, now=claimed.at)
        except SealBroken:
            detail = "The signing secret was kept under another SECRET_KEY; rotate it."
            return self._failed(claimed, TryOutcome(0, error_code="secret_unreadable", error_detail=detail)), None
        headers = signed_headers(str(claimed.id), claimed.body, secrets, at=claimed.at)
        outcome = await self._sender.send(claimed.url, headers, claimed.body)
        if outcome.went_well:
            return _ended(claimed, outcome, Status.DELIVERED), True
        return self._failed(claimed, outcome), False

    def _failed(self, claimed: Claimed, outcome: TryOutcome) -> Ended:
        retry_after = parse_retry_after(outcome.retry_after, now=datetime.now(tz=UTC))
        delay = next_delay(claimed.round_tries + 1, draw=self._config.draw(), retry_after=retry_after)
        # a test is for somebody who looks: it is tried once
        if delay is None or outcome.is_gone or claimed.event_type == EventType.TEST:
            return _ended(claimed, outcome, Status.FAILED)
        return _ended(claimed, outcome, Status.PENDING, delay)

    async def _record(self, group: Sequence[Ended]) -> list[bool]:
        """Insist for as long as the leases last; after that the tries are somebody's again."""
        give_up_at = time.monotonic() + claims.LEASE_SECONDS
        while True:
            try:
                written = await self._call(self._write_thread, lambda: claims.record(group))
            except (DataError, IntegrityError):
                return await self._record_one_by_one(group)
            except DatabaseError as error:
                logger.warning("%s tries not recorded yet: %s", len(group), type(error).__name__)
                if time.monotonic() > give_up_at:
                    return [False] * len(group)
                await asyncio.sleep(OUTAGE_SECONDS)
            else:
                return [ended.id in written for ended in group]

    async def _record_one_by_one(self, group: Sequence[Ended]) -> list[bool]:
        """One ending that the database refuses must not take its group down with it."""
        if len(group) > 1:
            return [(await self._record([ended]))[0] for ended in group]
        logger.error("the database refuses how a try of delivery %s ended", group[0].id)
        return [False]

    async def _call(self, thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(thread, _with_connection, call)


def _with_connection(call: Callable[[], T]) -> T:
    try:
        return call()
    except BaseException:
        connection.close()  # it may be what failed; the next call gets another
        raise


def _ended(claimed: Claimed, outcome: TryOutcome, status: Status, delay: float = 0.0) -> Ended:
    return Ended(
        id=claimed.id,
        claim_no=claimed.claim_no,
        at=claimed.at,
        status=status.value,
        latency_ms=outcome.latency_ms,
        status_code=outcome.status_code,
        error_code=outcome.error_code,
        error_detail=outcome.error_detail,
        answer=outcome.answer,
        delay=delay,
        gone=outcome.is_gone,
    )


def _untried(claimed: Claimed, code: str, detail: str) -> Ended:
    return Ended(
        id=claimed.id,
        claim_no=claimed.claim_no,
        at=claimed.at,
        status=Status.FAILED.value,
        error_code=code,
        error_detail=detail,
        tried=False,
    )

"""An engine running in the test's own process, and messages handed to it one by one."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from devstack.demo_site import DemoSite
from jobs.models import Job
from jobs.retries import Backoff
from jobs.states import FINAL
from jobs.transitions import ClaimTicket
from scraper.egress import EgressGuard
from scraper.engine import Engine, EngineConfig
from scraper.feeding import Admission
from scraper.fetcher import Fetcher
from tests import lifecycle

PATIENCE_SECONDS = 10.0


class HasPort(Protocol):
    """A server of the test on 127.0.0.1."""

    @property
    def port(self) -> int: ...


class Inbox:
    """A source of messages that the test fills: what lies in it, what the engine has in hand, what became of it."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[ClaimTicket] = queue.SimpleQueue()
        self.in_hand: list[ClaimTicket] = []
        self.settled: list[ClaimTicket] = []
        self.given_back: list[ClaimTicket] = []
        self.asked_for: list[int] = []

    def pull(self, at_most: int) -> list[ClaimTicket]:
        self.asked_for.append(at_most)
        with suppress(queue.Empty):
            while len(self.in_hand) < at_most:
                self.in_hand.append(self.waiting.get_nowait())
        return list(self.in_hand)

    def settle(self) -> None:
        self.settled += self.in_hand
        self.in_hand.clear()

    def give_back(self) -> None:
        self.given_back += self.in_hand
        self.in_hand.clear()

    def close(self) -> None:
        self.give_back()


class EngineUnderTest(Engine):
    """An engine that is fed by hand."""

    inbox: Inbox

    def send(self, *jobs: Job) -> None:
        """Hand it a message for each job, as the row stands in memory."""
        for job in jobs:
            self.inbox.waiting.put(ClaimTicket(job.id, job.claim_no, job.host))
        self._wake()


@contextmanager
def running_engine(
    site: HasPort, *, admission: Admission | None = None, also: Sequence[str] = (), **changes: Any
) -> Iterator[EngineUnderTest]:
    """Only `site`, and the addresses `also`, may be fetched from."""
    config: dict[str, Any] = {
        "worker": "engine-under-test",
        "slots": 4,
        "heartbeat_seconds": 0.2,
        "lease_seconds": 5.0,
        "backoff": Backoff(0.0, 0.0),
    }
    inbox = Inbox()
    engine = EngineUnderTest(
        EngineConfig(**(config | changes)),
        source=inbox,
        make_fetcher=lambda: Fetcher(
            egress=EgressGuard([f"127.0.0.1:{site.port}", *also]), user_agent="test", max_connections=8
        ),
        admission=admission,
    )
    engine.inbox = inbox
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(grace_seconds=0.0)


def make_job(site: DemoSite, path: str, **fields: Any) -> Job:
    return lifecycle.submit(url=site.url + path, host=f"127.0.0.1:{site.port}", **fields)


def take(engine: EngineUnderTest, job: Job) -> bool:
    """Send the job's message and wait until the engine has dealt with it; whether it got the job."""
    before = len(engine.inbox.settled)
    engine.send(job)
    wait_for(lambda: len(engine.inbox.settled) > before, "the message is settled")
    return Job.objects.filter(pk=job.pk, claim_no=job.claim_no + 1, worker="engine-under-test").exists()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def final(job: Job) -> Job:
    wait_for(lambda: Job.objects.filter(pk=job.pk, state__in=FINAL).exists(), "the job ended")
    job.refresh_from_db()
    return job

"""An engine running in the test's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from devstack.demo_site import DemoSite
from jobs.models import Job
from jobs.retries import Backoff
from jobs.states import FINAL
from jobs.transitions import ClaimTicket
from scraper.egress import EgressGuard
from scraper.engine import Engine, EngineConfig
from scraper.fetcher import Fetcher
from tests import lifecycle


@contextmanager
def running_engine(site: DemoSite, **changes: Any) -> Iterator[Engine]:
    config: dict[str, Any] = {
        "worker": "engine-under-test",
        "slots": 4,
        "heartbeat_seconds": 0.2,
        "lease_seconds": 5.0,
        "backoff": Backoff(0.0, 0.0),
    }
    engine = Engine(
        EngineConfig(**(config | changes)),
        make_fetcher=lambda: Fetcher(
            egress=EgressGuard([f"127.0.0.1:{site.port}"]), user_agent="test", max_connections=8
        ),
    )
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(grace_seconds=0.0)


def make_job(site: DemoSite, path: str, **fields: Any) -> Job:
    return lifecycle.submit(url=site.url + path, host=f"127.0.0.1:{site.port}", **fields)


def take(engine: Engine, job: Job) -> bool:
    return engine.take(ClaimTicket(job.id, job.claim_no))


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def final(job: Job) -> Job:
    wait_for(lambda: Job.objects.filter(pk=job.pk, state__in=FINAL).exists(), "the job ended")
    job.refresh_from_db()
    return job

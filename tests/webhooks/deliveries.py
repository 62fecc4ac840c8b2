"""Endpoints, ended jobs and a delivery engine in the test's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from jobs.models import Job
from jobs.states import State
from scraper.egress import EgressGuard, Resolver
from tenants.models import Tenant
from tests.factories import make_job
from webhooks import announcing
from webhooks.engine import DeliveryEngine, EngineConfig
from webhooks.models import Delivery, Endpoint
from webhooks.sender import Sender
from webhooks.signing import new_secret, seal_secret

PATIENCE_SECONDS = 15.0


def make_endpoint(tenant: Tenant, url: str = "https://example.com/hook", **values: Any) -> tuple[Endpoint, str]:
    """An endpoint and its secret."""
    secret = new_secret()
    endpoint = Endpoint.objects.create(tenant=tenant, url=url, secret=seal_secret(secret), **values)
    endpoint.refresh_from_db()
    return endpoint, secret


def ended_job(tenant: Tenant, state: State = State.SUCCEEDED, **values: Any) -> Job:
    """A job that ended just now."""
    return make_job(tenant, state=state, **({"finished_at": datetime.now(UTC)} | values))


def announced(job: Job) -> list[Delivery]:
    """The deliveries that its end asked for."""
    announcing.announce([job.id])
    return list(Delivery.objects.filter(job_id=job.id).order_by("id"))


@contextmanager
def running_engine(
    *allowed: str, timeout_seconds: float = 5.0, resolver: Resolver | None = None, ports: Sequence[str] = ()
) -> Iterator[DeliveryEngine]:
    """Only the addresses `allowed` may be called. No jitter."""
    engine = DeliveryEngine(
        lambda: Sender(EgressGuard(allowed, resolver, ports=ports), timeout_seconds=timeout_seconds),
        EngineConfig(poll_seconds=0.05, draw=lambda: 0.0),
    )
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(grace_seconds=0.0)


def wait_for(condition: Callable[[], bool], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def settled(delivery: Delivery, tries: int = 1) -> Delivery:
    """The delivery after so many tries."""
    wait_for(lambda: Delivery.objects.filter(pk=delivery.pk, tries__gte=tries).exists(), f"{tries} tries are recorded")
    delivery.refresh_from_db()
    return delivery

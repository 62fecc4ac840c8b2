"""Webhooks through real processes, some of which are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone
from standardwebhooks import Webhook

from devstack.demo_site import DemoSite
from jobs.models import FinishEvent
from jobs.states import State
from tenants.models import Tenant
from tests import lifecycle
from tests.integration.roles import Roles, wait_until
from tests.webhooks.deliveries import ended_job, make_endpoint
from tests.webhooks.receiver import Received, Receiver, Reply
from webhooks import sweeper
from webhooks.models import Delivery

pytestmark = pytest.mark.parametrize("broker_url", ["redis"], indirect=True)

JOBS = 60


@pytest.fixture
def receivers() -> Iterator[tuple[Receiver, Receiver]]:
    def busy(received: Received) -> Reply:
        return Reply(seconds=0.3)

    with Receiver(busy) as first, Receiver(busy) as second:
        yield first, second


def told(receiver: Receiver) -> set[str]:
    return {received.document["data"]["id"] for received in receiver.received}


def has_heard(receiver: Receiver, ends: int) -> bool:
    return len(told(receiver)) >= ends


def test_nobody_misses_an_end_when_the_processes_that_tell_are_killed(
    roles: Roles, receivers: tuple[Receiver, Receiver]
) -> None:
    tenant = Tenant.objects.create(name="acme")
    first, second = receivers
    roles.environment |= {"EGRESS_ALLOW": f"{first.allowed},{second.allowed}", "SWEEP_SECONDS": "1"}
    _, secret = make_endpoint(tenant, first.url)
    sweeper.sweep()
    for role in ("beat", "sweeper"):
        roles.start(role)
    events, publisher = roles.start("events"), roles.start("publisher")
    wanted: set[str] = set()
    for kill in range(3):
        wanted |= {str(ended_job(tenant, callback_url=second.url).id) for _ in range(JOBS // 3)}
        goal = JOBS // 3 * kill + 5
        wait_until(partial(has_heard, first, goal), seconds=60, what="some are told")
        time.sleep(random.random() * 0.3)
        os.killpg(events.pid, signal.SIGKILL)
        events = roles.start("events")
        if kill == 1:
            os.killpg(publisher.pid, signal.SIGKILL)
            publisher = roles.start("publisher")
    for receiver in receivers:
        wait_until(partial(has_heard, receiver, len(wanted)), seconds=90, what="all are told")
    assert told(first) == told(second) == wanted
    assert Delivery.objects.count() == 2 * JOBS
    for receiver in receivers:
        ids = {received.document["data"]["id"]: set[str]() for received in receiver.received}
        for received in receiver.received:
            ids[received.document["data"]["id"]].add(received.webhook_id)
        assert {len(of_one_job) for of_one_job in ids.values()} == {1}
    for received in first.received:
        assert Webhook(secret).verify(received.body, dict(received.headers))


def test_an_ended_job_is_told_soon_and_a_lost_message_later(roles: Roles, site: DemoSite) -> None:
    with Receiver() as receiver:
        roles.environment["EGRESS_ALLOW"] += f",{receiver.allowed}"
        for role in ("publisher", "worker", "events"):
            roles.start(role)
        host = f"127.0.0.1:{site.port}"
        job = lifecycle.submit(url=f"{site.url}/fast", host=host, callback_url=receiver.url)
        wait_until(lambda: len(receiver.received) == 1, seconds=60, what="the receiver is told")
        job.refresh_from_db()
        assert job.finished_at is not None
        assert receiver.received[0].at - job.finished_at.timestamp() < 30  # the events role was still starting
        again = lifecycle.submit(url=f"{site.url}/fast", host=host, callback_url=receiver.url)
        wait_until(lambda: len(receiver.received) == 2, seconds=30, what="it is told again")
        again.refresh_from_db()
        assert again.finished_at is not None
        assert receiver.received[1].at - again.finished_at.timestamp() < 2
        sweeper.sweep()
        Delivery.objects.all().delete()
        ended = timezone.now() - timedelta(seconds=sweeper.GRACE_SECONDS + 1)
        values = {"callback_url": receiver.url, "finished_at": ended, "finish_published_at": ended}
        lost = ended_job(job.tenant, State.CANCELLED, **values)
        FinishEvent.objects.create(tenant=job.tenant, job=lost, at=ended)
        assert sweeper.sweep().announced == 1
        wait_until(lambda: len(receiver.received) == 3, seconds=30, what="the sweeper found it")

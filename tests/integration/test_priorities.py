"""What a pool with too much to do takes next, by the claims of a real worker process."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest

from devstack.demo_site import DemoSite
from jobs.bus import Bus
from jobs.models import Job
from jobs.routing import EXECUTE, QUEUE_OF_PRIORITY
from jobs.states import FINAL, Priority, State
from tests import lifecycle
from tests.integration.conftest import limit_nothing
from tests.integration.roles import Roles, wait_until

CLAIMS = 400  # judged of each run
IN_THE_BROKER = 3000  # of each priority


@pytest.fixture
def host(transactional_db: None, site: DemoSite) -> str:
    """The site's host, with limits that limit nothing."""
    return limit_nothing(site)


def make_jobs(site: DemoSite, path: str, count: int, *priorities: Priority) -> list[Job]:
    """So many of each priority, one after the other, in one insert."""
    first = lifecycle.submit(url=site.url + path, host=f"127.0.0.1:{site.port}", priority=priorities[0])
    values: dict[str, Any] = {
        name: getattr(first, name)
        for name in ("tenant", "url", "host", "deadline_seconds", "max_attempts", "max_bytes", "eligible_at")
    }
    rest = [Job(priority=priority, **values) for _ in range(count) for priority in priorities]
    return [first, *Job.objects.bulk_create(rest[1:])]


def put_into_the_broker(url: str, jobs: list[Job]) -> None:
    """As a publisher with a very large window would."""
    with Bus(url) as bus:
        for job in jobs:
            bus.send(EXECUTE, (str(job.id), job.claim_no, job.host), QUEUE_OF_PRIORITY[job.priority])
    Job.objects.update(published_at=job.created_at)


def first_claims() -> list[int]:
    """The priorities of the first CLAIMS claims; those of one statement have one time, and their order is anybody's."""
    wait_until(lambda: Job.objects.filter(claim_no=1).count() >= CLAIMS, seconds=60, what="enough claims")
    claimed = Job.objects.filter(claim_no__gte=1).order_by("claimed_at", "id")
    return list(claimed.values_list("priority", flat=True)[:CLAIMS])


def windows(claims: list[int]) -> list[Counter[int]]:
    """Of any 100 claims in a row, how many were of which priority."""
    return [Counter(claims[start : start + 100]) for start in range(len(claims) - 99)]


def test_three_full_queues_have_60_30_10_of_any_hundred_claims(
    roles: Roles, site: DemoSite, host: str, broker_url: str
) -> None:
    put_into_the_broker(broker_url, make_jobs(site, "/fast", IN_THE_BROKER, *Priority))
    worker = roles.start("worker")
    for found in windows(first_claims()):
        assert 55 <= found[Priority.HIGH] <= 65
        assert 25 <= found[Priority.NORMAL] <= 35
        assert 7 <= found[Priority.LOW] <= 13
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0


def test_the_share_of_an_empty_queue_goes_to_the_others(
    roles: Roles, site: DemoSite, host: str, broker_url: str
) -> None:
    put_into_the_broker(broker_url, make_jobs(site, "/fast", CLAIMS, Priority.NORMAL, Priority.LOW))
    roles.start("worker")
    for found in windows(first_claims()):
        assert 70 <= found[Priority.NORMAL] <= 80
        assert 20 <= found[Priority.LOW] <= 30


def test_a_full_worker_holds_no_message_that_another_has_room_for(
    roles: Roles, site: DemoSite, host: str, broker_url: str
) -> None:
    """Eight jobs on three slots each: the second worker starts at once what the first has no slot for."""
    put_into_the_broker(broker_url, make_jobs(site, "/slow?seconds=20", 8, Priority.NORMAL))
    roles.start("worker", WORKER_SLOTS="3")
    wait_until(lambda: Job.objects.filter(state=State.RUNNING).count() == 3, seconds=60, what="three run")
    with Bus(broker_url) as bus:
        assert bus.holds(list(QUEUE_OF_PRIORITY.values())) == 5
    roles.start("worker", WORKER_SLOTS="3")
    wait_until(lambda: Job.objects.filter(state=State.RUNNING).count() == 6, seconds=60, what="six run")
    with Bus(broker_url) as bus:
        assert bus.holds(list(QUEUE_OF_PRIORITY.values())) == 2


def test_a_worker_that_stops_loses_no_message(roles: Roles, site: DemoSite, host: str, broker_url: str) -> None:
    """In the middle of short jobs: what it pulled was started or lies in the broker again, and another ends it."""
    put_into_the_broker(broker_url, make_jobs(site, "/fast", 300, Priority.NORMAL))
    first = roles.start("worker", WORKER_SLOTS="4")
    wait_until(lambda: Job.objects.filter(state__in=FINAL).count() > 20, seconds=60, what="some ended")
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=30) == 0
    left = Job.objects.filter(state=State.QUEUED).count()
    assert left > 0, "it ended everything before it stopped"
    with Bus(broker_url) as bus:
        assert bus.holds(list(QUEUE_OF_PRIORITY.values())) == left
    roles.start("worker")
    wait_until(lambda: not Job.objects.exclude(state=State.SUCCEEDED).exists(), seconds=60, what="all ended")
    assert not Job.objects.filter(claim_no__gt=1).exists()


@pytest.mark.parametrize("broker_url", ["redis"], indirect=True)
def test_a_pool_for_high_takes_nothing_else(roles: Roles, site: DemoSite, host: str, broker_url: str) -> None:
    put_into_the_broker(broker_url, make_jobs(site, "/fast", 5, *Priority))
    roles.start("worker for high")
    wait_until(lambda: Job.objects.filter(state__in=FINAL).count() == 5, seconds=60, what="those of high ended")
    assert set(Job.objects.filter(state__in=FINAL).values_list("priority", flat=True)) == {Priority.HIGH}
    with Bus(broker_url) as bus:
        assert bus.holds(list(QUEUE_OF_PRIORITY.values())) == 10

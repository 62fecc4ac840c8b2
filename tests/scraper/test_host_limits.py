"""An engine with the limiter: what becomes of jobs whose host may not be called now, and of what hosts answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from jobs import hosts
from jobs.models import Attempt, HostPolicy, HostState, Job
from jobs.states import State
from scraper.host_records import HostRecords
from scraper.politeness import Limiter
from scraper.visits import HostAdmission
from tests import lifecycle
from tests.scraper.engines import EngineUnderTest, final, running_engine, wait_for
from tests.scraper.limit_target import Answer, LimitTarget
from tests.scraper.limiters import OwnRedis, age_epoch, own_redis

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    with own_redis(tmp_path_factory.mktemp("limiter")) as server:
        yield server


@pytest.fixture
def target() -> Iterator[LimitTarget]:
    with LimitTarget() as target:
        yield target


@pytest.fixture
def other() -> Iterator[LimitTarget]:
    with LimitTarget() as target:
        yield target


@pytest.fixture
def engine(server: OwnRedis, target: LimitTarget, other: LimitTarget) -> Iterator[EngineUnderTest]:
    """Its stack has been idle for an hour."""
    server.flush()
    limiter = Limiter(HostRecords(), url=server.url, process="engine-under-test:1", prefix="engine:")
    with running_engine(target, admission=HostAdmission(limiter), also=[other.host]) as engine:
        age_epoch(server.url, "engine:")
        wait_for(limiter._opened.is_set, "the limiter is open")
        yield engine


def publish(target: LimitTarget, path: str = "/", **fields: Any) -> Job:
    values: dict[str, Any] = {"url": target.url + path, "host": target.host, "published_at": timezone.now()}
    return lifecycle.submit(**(values | fields))


def dealt_with(engine: EngineUnderTest, *jobs: Job) -> None:
    before = len(engine.inbox.settled)
    engine.send(*jobs)
    wait_for(lambda: len(engine.inbox.settled) >= before + len(jobs), "the messages are settled")


def back_in_the_backlog(job: Job) -> bool:
    job.refresh_from_db()
    return job.state == State.QUEUED and job.published_at is None


def redirect_to(target: LimitTarget, status: int = 302) -> Answer:
    return status, {"Location": f"{target.url}/there"}


def test_a_job_whose_turn_has_not_come_goes_back_without_using_an_attempt(
    engine: EngineUnderTest, target: LimitTarget
) -> None:
    HostPolicy.objects.create(host=target.host, rate=0.1, burst=2, concurrency=10)
    time.sleep(1.5)  # until it is heeded
    jobs = [publish(target) for _ in range(5)]
    dealt_with(engine, *jobs)
    wait_for(lambda: Job.objects.filter(state=State.SUCCEEDED).count() == 2, "the burst is fetched")
    waiting = [job for job in jobs if back_in_the_backlog(job)]
    assert len(waiting) == 3
    assert {(job.reason, job.attempts) for job in waiting} == {("host_rate", 0)}
    assert not Attempt.objects.filter(job__in=waiting).exists()
    due = sorted((job.eligible_at - timezone.now()).total_seconds() for job in waiting)
    assert due[0] > 5
    assert due[2] - due[0] > 5  # one after the other
    assert len(target.log) == 2


def test_jobs_of_a_paused_or_blocked_host_go_back_and_say_why(
    engine: EngineUnderTest, target: LimitTarget, other: LimitTarget
) -> None:
    HostPolicy.objects.create(host=target.host, paused=True)
    other.answer = lambda path: (503, {"Retry-After": "60"})
    time.sleep(1.5)
    paused, first = publish(target), publish(other)
    dealt_with(engine, paused, first)
    wait_for(lambda: Attempt.objects.filter(job=first).exists(), "the first attempt ended")
    assert HostState.objects.get(host=other.host).blocked_by == "http_503"  # before the attempt's end
    second = publish(other)
    dealt_with(engine, second)
    assert back_in_the_backlog(paused)
    assert back_in_the_backlog(second)
    assert (paused.reason, second.reason) == ("host_paused", "host_blocked")
    assert (target.log, len(other.log)) == ([], 1)


def test_a_redirect_is_charged_to_the_host_it_leads_to_and_blocks_that_one(
    engine: EngineUnderTest, target: LimitTarget, other: LimitTarget
) -> None:
    target.answer = lambda path: redirect_to(other)
    other.answer = lambda path: (429, {"Retry-After": "60"})
    job = publish(target, max_attempts=1)
    dealt_with(engine, job)
    assert final(job).error_code == "http_429"
    assert hosts.active_states().keys() == {other.host}


def test_a_redirect_to_a_host_that_may_not_be_called_gives_the_job_back_until_it_may(
    engine: EngineUnderTest, target: LimitTarget, other: LimitTarget
) -> None:
    other.answer = lambda path: (429, {"Retry-After": "60"})
    dealt_with(engine, blocked := publish(other, max_attempts=1))
    final(blocked)
    target.answer = lambda path: redirect_to(other, 307)
    job, unsafe = publish(target), publish(target, method="POST", deadline_seconds=1)
    dealt_with(engine, job, unsafe)
    wait_for(lambda: back_in_the_backlog(job), "it was given back")
    assert (job.reason, job.attempts) == ("host_blocked", 0)
    assert 40 < (job.eligible_at - timezone.now()).total_seconds() <= 60
    assert final(unsafe).error_code == "unsafe_to_retry"
    assert len(other.log) == 1


def test_without_redis_nothing_is_fetched_and_no_attempt_used(
    engine: EngineUnderTest, server: OwnRedis, target: LimitTarget
) -> None:
    server.stop()
    try:
        job = publish(target)
        engine.send(job)
        time.sleep(2.0)
        job.refresh_from_db()
        assert (job.state, job.attempts, job.published_at is None) == (State.QUEUED, 0, False)
        assert target.log == []
        assert engine.inbox.settled == []
    finally:
        server.start()
    assert final(job).attempts == 1


def test_a_job_that_is_not_to_be_had_gives_its_leave_back(engine: EngineUnderTest, target: LimitTarget) -> None:
    HostPolicy.objects.create(host=target.host, rate=0.1, burst=2, concurrency=1)
    time.sleep(1.5)
    gone = [publish(target, claim_no=7) for _ in range(3)]
    for job in gone:
        job.claim_no = 3  # messages of an earlier claim
        dealt_with(engine, job)
    job = publish(target)
    dealt_with(engine, job)
    assert final(job).state == State.SUCCEEDED

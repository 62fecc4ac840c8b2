"""The fifteen ways in which other queues lose jobs, run them twice or get stuck, each a test: those that need only a
database and an engine here, those marked (pool) in `test_pool_scenarios.py`.

- a sweeper paused between finding and writing: `test_a_sweeper_that_pauses_before_its_write_counts_leaves_one_end`
- a worker that does not know the executor: `test_a_job_waits_for_a_worker_that_knows_its_executor`
- a worker killed and restarted under its host's name: `test_a_killed_workers_jobs_all_run_again` (pool)
- a database connection dropped mid-job: `test_a_job_outlives_its_workers_connections` and, for longer than a lease,
  `test_an_outage_of_postgresql_leaves_no_two_live_attempts` (pool)
- heartbeats blocked, the job returns late: `test_a_job_that_returns_late_is_refused_and_frees_its_slot_once`
- the process that sweeps is killed: `test_sweeping_goes_on_when_the_sweeper_is_killed` (pool)
- a job longer than its lease: `test_a_job_longer_than_its_lease_is_not_picked_up_again`
- SIGTERM at full slots: `test_sigterm_at_full_slots_frees_them_and_the_backlog_drains` (pool)
- twice as many hanging jobs as slots: `test_hanging_jobs_that_expire_together_queue_behind_fresh_work`
- a retry later than the visibility timeout: `test_a_retry_later_than_the_visibility_timeout_runs_once`
- the broker's TCP reset again and again: `test_consuming_survives_resets_without_a_restart` (pool)
- a publisher killed between send and mark: `test_a_publisher_killed_before_its_mark_makes_one_run` (pool)
- a publisher killed while leader: `test_another_publisher_takes_over` (pool)
- a message for a job cancelled meanwhile: `test_a_message_for_a_job_cancelled_meanwhile_is_dropped`
- a result stored, its status lost: `test_a_result_whose_status_was_lost_is_made_again` (pool)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from devstack.demo_site import DemoSite
from jobs import publisher, sweeper, transitions
from jobs.dispatcher import Dispatcher
from jobs.models import Attempt, Job
from jobs.states import State
from tests import lifecycle
from tests.faults.inflict import purge
from tests.faults.target import Target
from tests.integration.roles import Roles, wait_until
from tests.scraper.engines import final, make_job, running_engine, take, wait_for

pytestmark = pytest.mark.django_db(transaction=True)
LONG_AGO = "2020-01-01T00:00:00Z"
VISIBILITY_SECONDS = 1  # as in impatient_settings.py


@pytest.fixture
def site() -> Iterator[DemoSite]:
    with DemoSite() as site:
        yield site


def let_leases_run_out(*jobs: Job) -> None:
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(lease_expires_at=LONG_AGO)


class Meanwhile:
    """Runs a call in a thread with a connection of its own, as another process would."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._answer: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._answer = self._call()
        connection.close()

    @property
    def waits(self) -> bool:
        """Whether it has not come back within a moment."""
        self._thread.join(timeout=0.3)
        return self._thread.is_alive()

    def answer(self) -> Any:
        """What the call returned, once it has."""
        self._thread.join(timeout=15)
        assert not self._thread.is_alive()
        return self._answer


class Killed(Exception):
    """Stands for the end of a process: its transaction is undone."""


@pytest.mark.parametrize("sweeper_lives", [True, False], ids=["then goes on", "then is killed"])
def test_a_sweeper_that_pauses_before_its_write_counts_leaves_one_end(sweeper_lives: bool) -> None:
    """It found the lease run out and stands still, while the worker reports success: one of the two counts."""
    job = lifecycle.submit()
    claimed = lifecycle.claim_now(job)
    let_leases_run_out(job)
    with suppress(Killed), transaction.atomic():
        assert transitions.expire_leases(10) == [job.id]
        finishing = Meanwhile(lambda: lifecycle.finish(lifecycle.success(claimed)))
        assert finishing.waits
        if not sweeper_lives:
            raise Killed
    assert finishing.answer() is not sweeper_lives
    job.refresh_from_db()
    assert job.state == (State.QUEUED if sweeper_lives else State.SUCCEEDED)
    assert Attempt.objects.filter(job=job).count() == 1


def test_a_sweeper_does_not_touch_a_job_whose_end_is_being_written() -> None:
    job = lifecycle.submit()
    claimed = lifecycle.claim_now(job)
    let_leases_run_out(job)
    with transaction.atomic():
        assert lifecycle.finish(lifecycle.success(claimed))
        sweeping = Meanwhile(lambda: transitions.expire_leases(10))
        assert sweeping.answer() == []
    assert transitions.expire_leases(10) == []
    job.refresh_from_db()
    assert (job.state, job.losses) == (State.SUCCEEDED, 0)


def test_a_job_waits_for_a_worker_that_knows_its_executor(site: DemoSite) -> None:
    job = make_job(site, "/fast", executor="browser")
    sent: list[Any] = []
    publisher.publish_batch(10, sent.extend)
    with running_engine(site) as ignorant:
        assert not take(ignorant, job)
    Job.objects.filter(pk=job.pk).update(published_at=LONG_AGO)
    assert sweeper.republish_lost_messages(10) == 1
    publisher.publish_batch(10, sent.extend)
    assert [message.arguments[:2] for message in sent] == [(str(job.id), 0)] * 2
    with running_engine(site, executors=("http", "browser")) as able:
        assert take(able, job)
        final(job)
    assert (job.state, job.attempts, job.claim_no) == (State.SUCCEEDED, 1, 1)


def test_a_job_that_returns_late_is_refused_and_frees_its_slot_once(site: DemoSite) -> None:
    """No heartbeat tells the worker, so that it finishes what another has taken over; one slot stays one slot."""
    late = make_job(site, "/slow?seconds=1")
    with running_engine(site, slots=1, heartbeat_seconds=60.0, lease_seconds=200.0) as engine:
        take(engine, late)
        let_leases_run_out(late)
        transitions.expire_leases(10)
        lifecycle.claim_now(late, worker="another")
        wait_for(lambda: engine.stale_attempts == 1, "the late result is refused")
        following = [make_job(site, "/slow?seconds=0.4") for _ in range(3)]
        for job in following:
            take(engine, job)
        for job in following:
            final(job)
    late.refresh_from_db()
    assert (late.state, late.worker, late.claim_no) == (State.RUNNING, "another", 2)
    spans = list(
        Attempt.objects.filter(job__in=following).order_by("started_at").values_list("started_at", "finished_at")
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "a slot was freed twice"


def test_a_job_longer_than_its_lease_is_not_picked_up_again(site: DemoSite, settings: Any) -> None:
    settings.LEASE_SECONDS = 1.0
    job = make_job(site, "/slow?seconds=3")
    with running_engine(site, heartbeat_seconds=0.2, lease_seconds=1.0) as engine:
        take(engine, job)
        while Job.objects.filter(pk=job.pk, state=State.RUNNING).exists():
            assert transitions.expire_leases(10) == []
            time.sleep(0.1)
    job.refresh_from_db()
    assert (job.state, job.claim_no, job.losses, len(site.log)) == (State.SUCCEEDED, 1, 0, 1)


def test_hanging_jobs_that_expire_together_queue_behind_fresh_work(site: DemoSite, settings: Any) -> None:
    """Two workers' worth of jobs is lost at once. What is new goes first, and they do not come back as one wave."""
    settings.RETRY_BASE_SECONDS, settings.RETRY_CAP_SECONDS = 30.0, 300.0
    slots = 4
    hanging = [make_job(site, "/slow?seconds=60") for _ in range(2 * slots)]
    for job in hanging:
        lifecycle.claim_now(job, worker="dead")
    let_leases_run_out(*hanging)
    fresh = [make_job(site, "/fast") for _ in range(slots)]
    assert len(transitions.expire_leases(100)) == len(hanging)
    assert [one.job_id for one in Dispatcher().choose(100)][:slots] == [str(job.id) for job in fresh]
    waits = sorted((job.eligible_at - timezone.now()).total_seconds() for job in Job.objects.filter(losses=1))
    assert len(waits) == len(hanging)
    assert waits[-1] - waits[0] > 1.0, "they come back together"
    with running_engine(site, slots=slots) as engine:
        for job in fresh:
            assert take(engine, job)
        assert [final(job).state for job in fresh] == [State.SUCCEEDED] * slots


def test_a_message_for_a_job_cancelled_meanwhile_is_dropped(site: DemoSite) -> None:
    job = make_job(site, "/fast")
    publisher.publish_batch(10, lambda messages: None)
    transitions.request_cancel(job.id, job.tenant_id)
    with running_engine(site) as engine:
        assert not take(engine, job)
    job.refresh_from_db()
    assert (job.state, job.claim_no, len(site.log)) == (State.CANCELLED, 0, 0)


def test_a_retry_later_than_the_visibility_timeout_runs_once(tmp_path: Path, settings: Any) -> None:
    """Delays lie in the database: no message waits anywhere that a broker could hand out again."""
    with Target() as target:
        environment = {
            "DJANGO_SETTINGS_MODULE": "tests.faults.impatient_settings",
            "SECRET_KEY": settings.SECRET_KEY,
            "EGRESS_ALLOW": target.address,
        }
        purge(settings.CELERY_BROKER_URL)
        with Roles(environment, tmp_path) as roles:
            roles.start("publisher")
            roles.start("worker")
            query = f"refusals=1&wait={3 * VISIBILITY_SECONDS}&seconds={2 * VISIBILITY_SECONDS}"
            job = lifecycle.submit(url=f"http://{target.address}/late?{query}", host=target.address)
            wait_until(lambda: Job.objects.filter(pk=job.pk, state=State.SUCCEEDED).exists(), seconds=60, what="ended")
            time.sleep(2 * VISIBILITY_SECONDS)  # time for what was handed out again to arrive
        assert [visit.status for visit in target.visits] == [503, 200]
    job.refresh_from_db()
    assert (job.claim_no, job.attempts) == (2, 2)

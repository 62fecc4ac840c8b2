"""Taking a job and losing one: claims, renewals and late finishes on real PostgreSQL."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from core.errors import NotFound
from jobs import leases, sweeper, transitions
from jobs.models import Attempt, Job, WorkerProcess
from jobs.states import Outcome, State
from jobs.transitions import ClaimTicket
from tenants.models import Tenant
from tests import lifecycle

pytestmark = pytest.mark.django_db


def _let_lease_run_out(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(hours=1))


def test_a_claim_takes_the_job_and_names_its_term() -> None:
    job = lifecycle.submit(headers={"X-A": "b"}, body=b"\x00\xff", method="POST")
    claimed = lifecycle.claim_now(job)
    job.refresh_from_db()
    assert (job.state, job.claim_no, job.attempts, job.worker) == (State.RUNNING, 1, 1, "worker-a")
    assert job.lease_expires_at is not None
    assert (claimed.claim_no, claimed.headers, claimed.body, claimed.method) == (1, {"X-A": "b"}, b"\x00\xff", "POST")


def test_a_second_message_for_the_same_job_finds_nothing() -> None:
    job = lifecycle.submit()
    assert lifecycle.claim(job) is not None
    assert lifecycle.claim(job, worker="worker-b") is None


def test_a_message_made_before_an_earlier_claim_finds_nothing() -> None:
    job = lifecycle.submit()
    old = ClaimTicket(job.id, job.claim_no)
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_503", again_after=0.0))
    assert transitions.claim([old], worker="worker-b", executors=["http"]) == {}
    assert lifecycle.claim_now(job).attempts == 2


def test_a_worker_that_does_not_know_the_executor_leaves_the_job() -> None:
    job = lifecycle.submit(executor="browser")
    assert lifecycle.claim(job) is None
    job.refresh_from_db()
    assert job.state == State.QUEUED


def test_a_late_finish_is_refused() -> None:
    job = lifecycle.submit()
    zombie = lifecycle.claim_now(job)
    _let_lease_run_out(job)
    assert transitions.expire_leases(10) == [job.id]
    current = lifecycle.claim_now(job, worker="worker-b")
    assert not lifecycle.finish(lifecycle.success(zombie))
    job.refresh_from_db()
    assert (job.state, job.claim_no, job.result_key) == (State.RUNNING, 2, "")
    assert lifecycle.finish(lifecycle.success(current))
    assert list(Attempt.objects.filter(job=job).values_list("claim_no", "outcome")) == [
        (1, "lease_expired"),
        (2, "succeeded"),
    ]


def test_a_finish_counts_once() -> None:
    claimed = lifecycle.claim_now(lifecycle.submit())
    assert lifecycle.finish(lifecycle.success(claimed))
    assert not lifecycle.finish(lifecycle.success(claimed))
    assert transitions.ended_claims([(claimed.job_id, claimed.claim_no)]) == {(claimed.job_id, claimed.claim_no)}


def test_a_failed_attempt_with_another_due_goes_back_unpublished() -> None:
    job = lifecycle.submit()
    claimed = lifecycle.claim_now(job)
    Job.objects.filter(pk=job.pk).update(published_at=timezone.now())
    lifecycle.finish(lifecycle.failure(claimed, "http_503", again_after=60.0, http_status=503))
    job.refresh_from_db()
    assert (job.state, job.published_at, job.lease_expires_at, job.error_code) == (State.QUEUED, None, None, "http_503")
    assert timedelta(seconds=50) < job.eligible_at - timezone.now() < timedelta(seconds=61)
    assert job.error_http_status == 503


def test_a_released_job_keeps_its_attempts() -> None:
    job = lifecycle.submit()
    claimed = lifecycle.claim_now(job)
    ending = transitions.Ending(
        claimed.job_id, 1, State.QUEUED, Outcome.RELEASED, "worker_shutdown", uses_attempt=False
    )
    assert lifecycle.finish(ending)
    job.refresh_from_db()
    assert (job.state, job.attempts, job.error_code) == (State.QUEUED, 0, "")
    assert Attempt.objects.get(job=job).number == 1


def test_renewing_tells_what_is_ours_and_what_is_to_be_stopped() -> None:
    kept, lost, stopped = (lifecycle.submit() for _ in range(3))
    claimed = [lifecycle.claim_now(job) for job in (kept, lost, stopped)]
    claims = [(one.job_id, one.claim_no) for one in claimed]
    lifecycle.finish(lifecycle.success(claimed[1]))
    transitions.request_cancel(stopped.id, stopped.tenant_id)
    answer = leases.renew(claims, worker="worker-a", slots=20)
    assert answer.held == {(kept.id, 1), (stopped.id, 1)}
    assert answer.cancelled == {(stopped.id, 1)}
    process = WorkerProcess.objects.get(name="worker-a")
    assert (process.slots, process.running) == (20, 3)


def test_renewing_moves_the_lease_forward() -> None:
    job = lifecycle.submit()
    lifecycle.claim_now(job)
    _let_lease_run_out(job)
    leases.renew([(job.id, 1)], worker="worker-a", slots=1)
    assert transitions.expire_leases(10) == []


def test_three_losses_are_a_crash_loop() -> None:
    job = lifecycle.submit(max_attempts=10)
    for _ in range(3):
        lifecycle.claim_now(job)
        _let_lease_run_out(job)
        transitions.expire_leases(10)
    job.refresh_from_db()
    assert (job.state, job.error_code, job.losses) == (State.FAILED, "crash_loop", 3)


def test_a_lease_lost_on_the_last_attempt_ends_the_job() -> None:
    job = lifecycle.submit(max_attempts=1)
    lifecycle.claim_now(job)
    _let_lease_run_out(job)
    transitions.expire_leases(10)
    job.refresh_from_db()
    assert (job.state, job.error_code) == (State.FAILED, "lease_expired")


def test_a_post_lost_with_its_worker_is_not_repeated() -> None:
    plain, marked = lifecycle.submit(method="POST"), lifecycle.submit(method="POST", retry_unsafe=True)
    for job in (plain, marked):
        lifecycle.claim_now(job)
        _let_lease_run_out(job)
    transitions.expire_leases(10)
    plain.refresh_from_db()
    marked.refresh_from_db()
    assert (plain.state, plain.error_code) == (State.FAILED, "unsafe_to_retry")
    assert marked.state == State.QUEUED


@pytest.mark.django_db(transaction=True)
def test_a_row_that_cannot_be_moved_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    poison, others = lifecycle.submit(), [lifecycle.submit() for _ in range(3)]
    for job in (poison, *others):
        lifecycle.claim_now(job)
        _let_lease_run_out(job)
    Attempt.objects.create(  # one claim ends once: a second end of this one breaks that rule
        job=poison, claim_no=1, number=1, outcome=Outcome.FAILED, worker="w", started_at=timezone.now()
    )
    assert sweeper.expire_leases() == 3
    assert set(Job.objects.filter(state=State.QUEUED)) == set(others)
    assert str(poison.id) in caplog.text


class TestCancel:
    """request_cancel."""

    def test_a_queued_job_is_cancelled_at_once(self) -> None:
        job = lifecycle.submit()
        assert transitions.request_cancel(job.id, job.tenant_id).state == State.CANCELLED

    def test_a_running_job_is_only_asked_and_asking_again_is_no_error(self) -> None:
        job = lifecycle.submit()
        lifecycle.claim_now(job)
        for _ in range(2):
            asked = transitions.request_cancel(job.id, job.tenant_id)
            assert (asked.state, asked.cancel_requested_at is not None) == (State.RUNNING, True)

    def test_an_ended_job_is_already_final(self) -> None:
        job = lifecycle.submit()
        transitions.request_cancel(job.id, job.tenant_id)
        with pytest.raises(transitions.AlreadyFinal):
            transitions.request_cancel(job.id, job.tenant_id)

    def test_another_tenants_job_is_not_found(self) -> None:
        job = lifecycle.submit()
        with pytest.raises(NotFound):
            transitions.request_cancel(job.id, Tenant.objects.create(name="other").id)

    def test_a_retry_that_would_follow_a_cancel_ends_the_job_instead(self) -> None:
        job = lifecycle.submit()
        claimed = lifecycle.claim_now(job)
        transitions.request_cancel(job.id, job.tenant_id)
        lifecycle.finish(lifecycle.failure(claimed, "http_503", again_after=1.0))
        job.refresh_from_db()
        assert (job.state, job.reason) == (State.CANCELLED, "cancelled")

    def test_a_success_that_came_before_the_stop_stands(self) -> None:
        job = lifecycle.submit()
        claimed = lifecycle.claim_now(job)
        transitions.request_cancel(job.id, job.tenant_id)
        assert lifecycle.finish(lifecycle.success(claimed))
        job.refresh_from_db()
        assert job.state == State.SUCCEEDED


@pytest.mark.django_db(transaction=True)
def test_of_many_claimers_at_once_each_job_has_one() -> None:
    jobs = [lifecycle.submit() for _ in range(30)]
    tickets = [ClaimTicket(job.id, 0) for job in jobs]
    start = threading.Barrier(8)
    won: list[uuid.UUID] = []

    def take(number: int) -> None:
        start.wait()
        mine = tickets if number % 2 else tickets[::-1]
        for first in range(0, len(mine), 7):
            won.extend(transitions.claim(mine[first : first + 7], worker=f"w{number}", executors=["http"]))
        connection.close()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(won) == {job.id: 1 for job in jobs}
    assert set(Job.objects.values_list("claim_no", flat=True)) == {1}

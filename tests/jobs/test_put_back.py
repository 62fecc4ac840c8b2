"""A published job whose host may not be fetched now goes back to the backlog as if it had never been published."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs import transitions
from jobs.models import Attempt, Job, JobEvent
from jobs.states import State
from jobs.transitions import ClaimTicket, Postponed
from tests import lifecycle

pytestmark = pytest.mark.django_db


def published(**fields: Any) -> Job:
    return lifecycle.submit(published_at=timezone.now(), **fields)


def put_back(job: Job, *, delay: float = 60.0, reason: str = "host_rate") -> bool:
    return job.id in transitions.put_back([Postponed(ClaimTicket(job.id, job.claim_no), delay, reason)])


def test_it_is_published_anew_after_the_delay_and_tells_why_it_waits() -> None:
    job = published()
    assert put_back(job, delay=60.0, reason="host_blocked")
    job.refresh_from_db()
    assert (job.state, job.published_at, job.reason) == (State.QUEUED, None, "host_blocked")
    assert timedelta(seconds=50) < job.eligible_at - timezone.now() < timedelta(seconds=70)


def test_it_uses_no_attempt_and_writes_no_event() -> None:
    job = published()
    events = JobEvent.objects.filter(job=job).count()
    assert put_back(job)
    job.refresh_from_db()
    assert (job.attempts, job.claim_no, job.losses) == (0, 0, 0)
    assert JobEvent.objects.filter(job=job).count() == events
    assert not Attempt.objects.filter(job=job).exists()


def test_what_moved_on_meanwhile_is_left_alone() -> None:
    claimed, cancelled, put_back_already = published(), published(), published()
    lifecycle.claim_now(claimed)
    claimed.claim_no = 0  # the message was made before
    transitions.request_cancel(cancelled.id, cancelled.tenant_id)
    assert put_back(put_back_already, delay=60.0)
    assert [put_back(job, delay=0.0) for job in (claimed, cancelled, put_back_already)] == [False, False, False]
    assert Job.objects.get(pk=claimed.pk).state == State.RUNNING
    assert Job.objects.get(pk=put_back_already.pk).eligible_at > timezone.now()


def test_a_message_of_an_earlier_claim_puts_nothing_back() -> None:
    job = published(claim_no=3)
    job.claim_no = 2
    assert not put_back(job)


def test_many_go_back_each_with_its_own_delay_and_reason() -> None:
    jobs = [published() for _ in range(3)]
    postponed = [
        Postponed(ClaimTicket(job.id, job.claim_no), 100.0 * number, f"reason {number}")
        for number, job in enumerate(jobs)
    ]
    assert transitions.put_back(postponed) == {job.id for job in jobs}
    for number, job in enumerate(jobs):
        job.refresh_from_db()
        assert job.reason == f"reason {number}"
        assert abs((job.eligible_at - timezone.now()).total_seconds() - 100 * number) < 50

"""The outbox: what is sent, what is marked, and what a crash in between leaves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs import backlog, patience, publisher, sweeper, transitions
from jobs.dispatcher import Dispatcher, window
from jobs.durations import FIRST_GUESS_SECONDS
from jobs.messages import Message
from jobs.models import FinishEvent, Job, WorkerProcess
from tests import lifecycle

pytestmark = pytest.mark.django_db


class Bus:
    """Remembers what was sent; breaks at the message number it is told."""

    def __init__(self, *, breaks_at: int | None = None) -> None:
        self.sent: list[Message] = []
        self._breaks_at = breaks_at

    def __call__(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if len(self.sent) == self._breaks_at:
                raise OSError("the broker is gone")
            self.sent.append(message)


def test_each_priority_has_its_queue_and_the_message_names_the_claim() -> None:
    jobs = [lifecycle.submit(priority=priority) for priority in (1, 2, 3)]
    bus = Bus()
    assert publisher.publish_batch(10, bus) == 3
    assert bus.sent == [
        ("scraper.execute", (str(job.id), 0, job.host), queue)
        for job, queue in zip(jobs, ("jobs.high", "jobs.normal", "jobs.low"), strict=True)
    ]
    assert publisher.publish_batch(10, bus) == 0


def test_the_oldest_due_goes_first_and_what_is_not_due_stays() -> None:
    now = timezone.now()
    late = lifecycle.submit(eligible_at=now - timedelta(seconds=5))
    early = lifecycle.submit(eligible_at=now - timedelta(seconds=9))
    lifecycle.submit(eligible_at=now + timedelta(seconds=60))
    bus = Bus()
    publisher.publish_batch(10, bus)
    assert [arguments[0] for _, arguments, _ in bus.sent] == [str(early.id), str(late.id)]
    due_in = backlog.seconds_until_next_due()
    assert due_in is not None
    assert 50 < due_in <= 60


def test_a_broken_broker_marks_nothing_that_was_not_sent() -> None:
    for _ in range(3):
        lifecycle.submit()
    with pytest.raises(OSError, match="gone"):
        publisher.publish_batch(10, Bus(breaks_at=1))
    assert Job.objects.filter(published_at=None).count() == 3
    again = Bus()
    assert publisher.publish_batch(10, again) == 3


def test_a_late_mark_does_not_hide_a_retry() -> None:
    """The worker may be quicker than the publisher: claimed, failed and queued again before the mark."""
    job = lifecycle.submit()

    def worker_is_quick(messages: Sequence[Message]) -> None:
        lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_503", again_after=0.0))

    publisher.publish_batch(10, worker_is_quick)
    job.refresh_from_db()
    assert (job.claim_no, job.published_at) == (1, None)
    bus = Bus()
    assert publisher.publish_batch(10, bus) == 1
    assert bus.sent[0][1] == (str(job.id), 1, job.host)


def test_the_window_bounds_what_the_broker_holds(settings: Any) -> None:
    settings.PUBLISH_WINDOW = 4
    for number in range(10):
        lifecycle.submit(host=f"host{number}:80")
    bus = Bus()
    assert publisher.publish_batch(100, bus) == 4
    assert publisher.publish_batch(100, bus) == 0
    lifecycle.claim_now(Job.objects.exclude(published_at=None)[0])
    assert publisher.publish_batch(100, bus) == 1


def room() -> int:
    dispatcher = Dispatcher()
    dispatcher.choose(0)
    return dispatcher.room


def test_the_window_follows_the_living_pool(settings: Any) -> None:
    settings.PUBLISH_WINDOW = 0
    settings.WORKER_SLOTS = 3
    assert room() == window(3, FIRST_GUESS_SECONDS)
    WorkerProcess.objects.create(name="a", slots=5)
    WorkerProcess.objects.create(name="b", slots=5)
    WorkerProcess.objects.create(name="dead", slots=50)
    WorkerProcess.objects.filter(name="dead").update(seen_at=timezone.now() - timedelta(hours=1))
    assert room() == window(10, FIRST_GUESS_SECONDS)


def test_a_message_that_the_broker_lost_is_sent_again(settings: Any) -> None:
    job = lifecycle.submit()
    publisher.publish_batch(10, Bus())
    assert sweeper.republish_lost_messages(10) == 0
    old = timezone.now() - timedelta(seconds=patience.lost_message_grace() + 60)
    Job.objects.filter(pk=job.pk).update(published_at=old)
    assert sweeper.republish_lost_messages(10) == 1
    assert publisher.publish_batch(10, Bus()) == 1


def test_what_an_emptied_broker_lost_is_sent_again_within_seconds() -> None:
    lost, just_sent = lifecycle.submit(), lifecycle.submit()
    publisher.publish_batch(10, Bus())
    Job.objects.filter(pk=lost.pk).update(published_at=timezone.now() - timedelta(seconds=publisher.LOSS_SECONDS + 60))
    assert publisher.LossWatch().look(lambda: 1) == 0, "it still holds messages"
    watch = publisher.LossWatch()
    assert watch.look(lambda: 0) == 1
    just_sent.refresh_from_db()
    assert just_sent.published_at is not None
    bus = Bus()
    publisher.publish_batch(10, bus)
    assert [arguments[0] for _, arguments, _ in bus.sent] == [str(lost.id)]
    assert watch.look(lambda: pytest.fail("asked again at once")) == 0


def test_a_broker_is_not_asked_while_nothing_waits_for_long() -> None:
    lifecycle.submit()
    publisher.publish_batch(10, Bus())
    assert publisher.LossWatch().look(lambda: pytest.fail("asked")) == 0


def test_finish_events_are_told_once_to_every_subscriber() -> None:
    job = lifecycle.submit()
    lifecycle.finish(lifecycle.success(lifecycle.claim_now(job)))
    lifecycle.submit()
    bus = Bus()
    assert publisher.publish_finish_events(10, bus) == 1
    assert bus.sent == [
        ("query.forget_job", (str(job.id),), "events"),
        ("webhooks.announce", (str(job.id),), "events"),
    ]
    assert publisher.publish_finish_events(10, bus) == 0


def test_a_finish_event_that_could_not_be_sent_is_sent_later() -> None:
    lifecycle.finish(lifecycle.success(lifecycle.claim_now(lifecycle.submit())))
    with pytest.raises(OSError, match="gone"):
        publisher.publish_finish_events(10, Bus(breaks_at=0))
    assert publisher.publish_finish_events(10, Bus()) == 1


def test_a_sweep_counts_what_it_did() -> None:
    job = lifecycle.submit()
    lifecycle.claim_now(job)
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(hours=1))
    assert sweeper.sweep() == sweeper.Sweep(leases_expired=1, messages_lost=0, keys_purged=0)
    assert sweeper.sweep() == sweeper.Sweep(leases_expired=0, messages_lost=0, keys_purged=0)


def test_a_job_that_is_retried_while_its_end_is_told_has_its_next_end_told_too() -> None:
    job = lifecycle.submit()
    transitions.request_cancel(job.id, job.tenant_id)

    def retry_meanwhile(messages: Sequence[Message]) -> None:
        transitions.retry(job.id, job.tenant_id)

    publisher.publish_finish_events(10, retry_meanwhile)
    assert FinishEvent.objects.count() == 0
    transitions.request_cancel(job.id, job.tenant_id)
    bus = Bus()
    assert publisher.publish_finish_events(10, bus) == 1
    assert bus.sent
    assert FinishEvent.objects.values_list("job_id", flat=True).get() == job.id

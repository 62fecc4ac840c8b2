"""From ends to deliveries."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from pytest_django import Settings

from jobs import publisher, transitions
from jobs.models import FinishEvent, Job
from jobs.states import State
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import make_job, make_tenant
from tests.webhooks.deliveries import announced, ended_job, make_endpoint
from webhooks import announcing, endpoints, sweeper
from webhooks.models import CallbackSecret, Delivery, DeliveryTry, Endpoint
from webhooks.sweeper import first_id_at

pytestmark = pytest.mark.django_db


def test_each_of_the_tenants_endpoints_and_the_callback_get_one_delivery(tenant: Tenant) -> None:
    mine = {make_endpoint(tenant)[0].id for _ in range(2)}
    make_endpoint(make_tenant())
    made = announced(ended_job(tenant, callback_url="https://example.com/cb"))
    assert {one.endpoint_id for one in made} == mine | {None}
    assert {one.url for one in made} == {"", "https://example.com/cb"}
    assert len({bytes(one.body) for one in made}) == 1


def test_hearing_of_an_end_again_makes_nothing_new(tenant: Tenant) -> None:
    make_endpoint(tenant)
    job = ended_job(tenant, callback_url="https://example.com/cb")
    first = {one.id for one in announced(job)}
    assert {one.id for one in announced(job)} == first
    assert len(first) == 2


@pytest.mark.django_db(transaction=True)
def test_many_who_hear_of_an_end_at_once_make_one_delivery(tenant: Tenant) -> None:
    make_endpoint(tenant)
    job = ended_job(tenant, callback_url="https://example.com/cb")
    start = threading.Barrier(8)

    def hear() -> None:
        start.wait()
        announcing.announce([job.id])
        connection.close()

    threads = [threading.Thread(target=hear) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Delivery.objects.count() == 2
    assert CallbackSecret.objects.count() == 1


def test_a_job_that_was_retried_and_ends_again_is_another_event() -> None:
    job = lifecycle.submit(callback_url="https://example.com/cb")
    transitions.request_cancel(job.id, job.tenant_id)
    Job.objects.filter(pk=job.pk).update(finished_at=datetime.now(UTC) - timedelta(seconds=1))
    assert len(announced(job)) == 1
    transitions.retry(job.id, job.tenant_id)
    assert len(announced(job)) == 1
    lifecycle.finish(lifecycle.success(lifecycle.claim_now(job)))
    assert len(announced(job)) == 2


def test_nobody_hears_of_what_ended_before_it_was_registered_or_while_it_is_disabled(tenant: Tenant) -> None:
    endpoint, _ = make_endpoint(tenant)
    assert announced(make_job(tenant, state=State.SUCCEEDED)) == []
    endpoints.change(endpoint, {"enabled": False})
    assert announced(ended_job(tenant)) == []
    endpoints.change(endpoint, {"enabled": True})
    endpoints.delete(endpoint)
    assert announced(ended_job(tenant)) == []


def test_links_are_whole_addresses_where_it_is_known_under_which_the_service_is_reached(
    tenant: Tenant, settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://jobs.example"
    job = ended_job(tenant)
    assert f'"self":"https://jobs.example/api/v1/jobs/{job.id}"'.encode() in announcing.finished_body(job)


def test_an_end_whose_message_the_broker_lost_is_announced_by_the_sweeper() -> None:
    sweeper.sweep()
    job = lifecycle.submit(callback_url="https://example.com/cb")
    silent = lifecycle.submit()
    for one in (job, silent):
        lifecycle.finish(lifecycle.success(lifecycle.claim_now(one)))
    publisher.publish_finish_events(10, lambda messages: None)
    assert sweeper.sweep().announced == 0
    old = datetime.now(UTC) - timedelta(seconds=sweeper.GRACE_SECONDS + 1)
    FinishEvent.objects.update(at=old)
    Job.objects.update(finished_at=old)
    assert sweeper.sweep().announced == 1
    assert Delivery.objects.get().job_id == job.id
    assert sweeper.sweep().announced == 0


def test_an_end_that_was_numbered_before_an_older_one_is_not_passed_over(tenant: Tenant) -> None:
    sweeper.sweep()
    make_endpoint(tenant, created_at=datetime.now(UTC) - timedelta(hours=1))
    old = datetime.now(UTC) - timedelta(seconds=sweeper.GRACE_SECONDS + 1)
    for at in (datetime.now(UTC), old):
        FinishEvent.objects.create(tenant=tenant, job=ended_job(tenant, finished_at=at), at=at)
    assert sweeper.sweep().announced == 0
    Job.objects.update(finished_at=old)
    FinishEvent.objects.update(at=old)
    assert sweeper.sweep().announced == 2


def test_what_was_announced_is_not_swept_again() -> None:
    sweeper.sweep()
    job = lifecycle.submit(callback_url="https://example.com/cb")
    lifecycle.finish(lifecycle.success(lifecycle.claim_now(job)))
    publisher.publish_finish_events(10, lambda messages: None)
    old = datetime.now(UTC) - timedelta(seconds=sweeper.GRACE_SECONDS + 1)
    FinishEvent.objects.update(at=old)
    Job.objects.update(finished_at=old)
    announced(job)
    assert sweeper.sweep().announced == 0
    assert Delivery.objects.count() == 1


def test_deliveries_past_their_retention_go_with_their_tries_in_pages(
    tenant: Tenant, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "PAGE", 2)
    settings.RETENTION_DAYS = 10
    make_endpoint(tenant)
    made = [one for _ in range(7) for one in announced(ended_job(tenant))]
    past = datetime.now(UTC) - timedelta(days=10, minutes=1)
    for number, one in enumerate(made[:5]):
        aged = first_id_at(past + timedelta(milliseconds=number))
        Delivery.objects.filter(pk=one.pk).update(id=aged, status="delivered")
        DeliveryTry.objects.create(delivery_id=aged, number=1, at=past, latency_ms=1)
    assert sweeper.sweep().deliveries_forgotten == 5
    assert set(Delivery.objects.values_list("id", flat=True)) == {one.id for one in made[5:]}
    assert not DeliveryTry.objects.exists()


def test_what_is_still_pending_outlives_a_short_retention(tenant: Tenant, settings: Settings) -> None:
    settings.RETENTION_DAYS = 1
    make_endpoint(tenant)
    (one,) = announced(ended_job(tenant))
    Delivery.objects.filter(pk=one.pk).update(id=first_id_at(datetime.now(UTC) - timedelta(days=3)))
    assert sweeper.sweep().deliveries_forgotten == 0
    Delivery.objects.update(id=first_id_at(datetime.now(UTC) - timedelta(days=7, minutes=1)))
    assert sweeper.sweep().deliveries_forgotten == 1


def test_a_deleted_endpoint_stays_until_its_deliveries_are_gone(tenant: Tenant) -> None:
    endpoint, _ = make_endpoint(tenant)
    announced(ended_job(tenant))
    Endpoint.objects.update(deleted_at=datetime.now(UTC) - timedelta(hours=2))
    assert sweeper.sweep().endpoints_forgotten == 0
    Delivery.objects.all().delete()
    assert sweeper.sweep().endpoints_forgotten == 1
    assert not Endpoint.objects.filter(pk=endpoint.pk).exists()

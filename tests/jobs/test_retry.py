"""POST /jobs/{id}/retry, and starting ended jobs anew."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from django.db import connection, transaction
from django.test import Client

from jobs import publisher, transitions
from jobs.messages import Message
from jobs.models import Attempt, Job, JobEvent
from jobs.states import State
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import client_of, make_job, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return client_of(tenant)


def path(job_id: uuid.UUID) -> str:
    return f"/api/v1/jobs/{job_id}/retry"


def failed_job(tenant: Tenant) -> Job:
    job = lifecycle.submit(tenant)
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_404", http_status=404))
    publisher.publish_finish_events(10, lambda *_: None)
    job.refresh_from_db()
    return job


def test_a_failed_job_gets_a_fresh_set_of_attempts(client: Client, tenant: Tenant) -> None:
    job = failed_job(tenant)
    answer = client.post(path(job.id))
    assert answer.status_code == 202
    document = answer.json()
    assert (document["status"], document["attempts"], document["finished_at"]) == ("queued", 0, None)
    assert document["last_error"]["code"] == "http_404"
    again = lifecycle.claim_now(job)
    assert (again.claim_no, again.attempts) == (2, 1)
    assert Attempt.objects.filter(job=job).count() == 1


def test_its_next_end_is_told_again(client: Client, tenant: Tenant) -> None:
    job = failed_job(tenant)
    client.post(path(job.id))
    lifecycle.finish(lifecycle.success(lifecycle.claim_now(job)))
    told: list[Message] = []
    publisher.publish_finish_events(10, told.extend)
    assert {message.arguments for message in told} == {(str(job.id),)}


def test_a_cancelled_job_can_be_retried_and_is_not_stopped_again(client: Client, tenant: Tenant) -> None:
    job = lifecycle.submit(tenant)
    transitions.request_cancel(job.id, tenant.id)
    assert client.post(path(job.id)).json()["status"] == "queued"
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_503", again_after=0.0))
    job.refresh_from_db()
    assert job.state == State.QUEUED


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.SUCCEEDED])
def test_any_other_job_is_not_retryable(client: Client, tenant: Tenant, state: State) -> None:
    job = make_job(tenant, state=state)
    answer = client.post(path(job.id))
    assert (answer.status_code, answer.json()["code"]) == (409, "not_retryable")
    assert state.value in answer.json()["detail"]


def test_another_tenants_job_is_404_and_stays_ended(client: Client) -> None:
    job = make_job(make_tenant(), state=State.FAILED)
    assert client.post(path(job.id)).status_code == 404
    job.refresh_from_db()
    assert job.state == State.FAILED


def test_a_late_word_from_before_the_retry_is_refused(client: Client, tenant: Tenant) -> None:
    job = lifecycle.submit(tenant)
    old = lifecycle.claim_now(job)
    lifecycle.finish(lifecycle.failure(old, "http_404"))
    client.post(path(job.id))
    lifecycle.claim_now(job)
    assert not lifecycle.finish(lifecycle.success(old))


@pytest.mark.django_db(transaction=True)
def test_of_many_retries_at_once_one_moves_the_job() -> None:
    job = failed_job(Tenant.objects.create(name="acme"))
    start, moved = threading.Barrier(6), []

    def restart() -> None:
        start.wait()
        moved.extend(transitions.restart([job.id], reason="retried"))
        connection.close()

    threads = [threading.Thread(target=restart) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert moved == [job.id]
    assert JobEvent.objects.filter(job=job, reason="retried").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_held_for_a_moment_is_retried_after_it() -> None:
    """As the publisher holds one whose end it tells of, right after that end."""
    tenant = make_tenant()
    job, client, holding = failed_job(tenant), client_of(tenant), threading.Event()
    client.get("/api/v1/jobs")  # the first answer of a process takes longest

    def hold() -> None:
        try:
            with transaction.atomic():
                Job.objects.select_for_update().get(pk=job.pk)
                holding.set()
                time.sleep(0.5)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holding.wait(10)
        assert client.post(path(job.id)).status_code == 202
    finally:
        thread.join(10)

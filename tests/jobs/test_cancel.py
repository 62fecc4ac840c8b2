"""POST /jobs/{id}/cancel."""

from __future__ import annotations

import threading
import uuid

import pytest
from django.db import connection
from django.test import Client

from jobs import transitions
from jobs.models import Job
from jobs.states import FINAL, State
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import client_of, make_job, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return client_of(tenant)


def path(job_id: uuid.UUID) -> str:
    return f"/api/v1/jobs/{job_id}/cancel"


def test_a_queued_job_is_cancelled_at_once_and_shown(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant)
    answer = client.post(path(job.id))
    assert answer.status_code == 200
    assert answer.json() == client.get(f"/api/v1/jobs/{job.id}").json()
    assert (answer.json()["status"], answer.json()["waiting_on"]) == ("cancelled", None)
    assert answer.json()["finished_at"] is not None


def test_a_running_job_is_asked_to_stop_and_asking_again_is_fine(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant, state=State.RUNNING)
    assert client.post(path(job.id)).json()["status"] == "running"
    asked_at = Job.objects.get(pk=job.pk).cancel_requested_at
    assert asked_at is not None
    assert client.post(path(job.id)).status_code == 200
    assert Job.objects.get(pk=job.pk).cancel_requested_at == asked_at


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_job_that_has_ended_stays_as_it_is(client: Client, tenant: Tenant, state: State) -> None:
    job = make_job(tenant, state=state)
    answer = client.post(path(job.id))
    assert (answer.status_code, answer.json()["code"]) == (409, "already_final")
    assert Job.objects.get(pk=job.pk).state == state


def test_another_tenants_job_is_404_and_goes_on(client: Client) -> None:
    job = make_job(make_tenant())
    assert client.post(path(job.id)).status_code == 404
    assert Job.objects.get(pk=job.pk).state == State.QUEUED
    assert client.post(path(uuid.uuid4())).status_code == 404


def test_cancelling_needs_post_and_the_write_scope(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant)
    refused = client.get(path(job.id))
    assert (refused.status_code, refused["Allow"]) == (405, "POST, OPTIONS")
    assert client_of(tenant, scopes=["jobs:read"]).post(path(job.id)).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_a_cancel_that_comes_with_the_end_says_so() -> None:
    """Asked for while running, ended before the answer was read: the caller must not hear that it was cancelled."""
    answers: list[str] = []

    def cancel(job: Job, start: threading.Barrier) -> None:
        start.wait()
        try:
            answers.append(transitions.request_cancel(job.id, job.tenant_id).state)
        except transitions.AlreadyFinal:
            answers.append("already_final")
        connection.close()

    for _ in range(300):
        job = lifecycle.submit()
        ending = lifecycle.success(lifecycle.claim_now(job))
        start = threading.Barrier(2)
        thread = threading.Thread(target=cancel, args=(job, start))
        thread.start()
        start.wait()
        transitions.finish([ending])
        thread.join()
    assert set(answers) <= {State.RUNNING, "already_final"}
    assert len(answers) == 300

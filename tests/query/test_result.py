"""GET /jobs/{id}/result."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from pytest_django import Settings

from jobs.models import Job
from jobs.states import State
from tenants.models import Tenant
from tests.factories import make_job


def test_a_service_without_keys_to_sign_with_says_unavailable(
    client: Client, tenant: Tenant, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    links = settings.STORAGES["result_links"]
    without = {**links["OPTIONS"], "access_key": None, "secret_key": None}
    settings.STORAGES = {**settings.STORAGES, "result_links": {**links, "OPTIONS": without}}
    answer = ask(client, make_job(tenant, state=State.SUCCEEDED))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer["Retry-After"]) > 0


def ask(client: Client, job: Job) -> Any:
    return client.get(f"/api/v1/jobs/{job.id}/result")


def test_a_link_is_signed_here_and_lives_as_long_as_it_says(client: Client, tenant: Tenant, settings: Settings) -> None:
    """Nothing listens where the storage is said to be (conftest.py): signing must not ask it."""
    before = datetime.now(UTC)
    job = make_job(tenant, state=State.SUCCEEDED)
    answer = ask(client, job)
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    link = answer.json()
    assert set(link) == {"url", "expires_at"}
    query = parse_qs(urlsplit(link["url"]).query)
    assert job.result_key in link["url"]
    assert query["X-Amz-Expires"] == [str(settings.RESULT_LINK_SECONDS)]
    assert query["response-content-disposition"] == [f'attachment; filename="{job.id}"']
    assert query["response-content-type"] == ["application/octet-stream"]
    life = datetime.fromisoformat(link["expires_at"]) - before
    assert timedelta(0) <= life - timedelta(seconds=settings.RESULT_LINK_SECONDS) < timedelta(seconds=30)


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
def test_before_the_end_it_is_not_ready(client: Client, tenant: Tenant, state: State) -> None:
    answer = ask(client, make_job(tenant, state=state))
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (409, "result_not_ready", "1")


@pytest.mark.parametrize(("ahead", "least", "most"), [(60, 50, 60), (10**7, 3600, 3600)])
def test_retry_after_is_not_before_the_job_may_start(
    client: Client, tenant: Tenant, ahead: int, least: int, most: int
) -> None:
    later = datetime.now(UTC) + timedelta(seconds=ahead)
    answer = ask(client, make_job(tenant, run_at=later, eligible_at=later))
    assert least <= int(answer["Retry-After"]) <= most


@pytest.mark.parametrize(("state", "code"), [(State.FAILED, "job_failed"), (State.CANCELLED, "job_cancelled")])
def test_a_job_that_ended_otherwise_has_none(client: Client, tenant: Tenant, state: State, code: str) -> None:
    answer = ask(client, make_job(tenant, state=state))
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert "Retry-After" not in answer


def test_after_retention_it_is_gone(client: Client, tenant: Tenant) -> None:
    expired = datetime.now(UTC) - timedelta(seconds=1)
    answer = ask(client, make_job(tenant, state=State.SUCCEEDED, result_expires_at=expired))
    assert (answer.status_code, answer.json()["code"]) == (410, "result_expired")

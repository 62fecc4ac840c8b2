"""The cache in front of one job's answer, on real Redis."""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache as redis
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Job
from jobs.states import State
from query import cache
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import client_of

NOW = timezone.now()


def make(state: State = State.QUEUED, **values: Any) -> Job:
    return Job(id=uuid.uuid4(), tenant_id=uuid.uuid4(), state=state, **values)


def test_another_tenant_never_gets_the_answer() -> None:
    job = make()
    cache.remember(job, {"status": "queued"}, now=NOW)
    assert cache.recall(job.tenant_id, job.id) == {"status": "queued"}
    assert cache.recall(uuid.uuid4(), job.id) is None
    cache.forget(job.id)
    assert cache.recall(job.tenant_id, job.id) is None


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.FAILED, State.CANCELLED])
def test_what_may_still_change_is_kept_for_two_seconds(state: State) -> None:
    job = make(state)
    cache.remember(job, {}, now=NOW)
    assert 0 < redis.pttl(f"job:{job.id}") <= 2000  # type: ignore[attr-defined]


def test_a_success_is_kept_as_long_as_its_result() -> None:
    job = make(State.SUCCEEDED, result_expires_at=NOW + timedelta(days=3))
    cache.remember(job, {}, now=NOW)
    assert 3 * 86_400_000 - 60_000 < redis.pttl(f"job:{job.id}") <= 3 * 86_400_000  # type: ignore[attr-defined]


@pytest.mark.django_db
def test_a_hit_reads_no_job_from_the_database(tenant: Tenant) -> None:
    job, client = lifecycle.submit(tenant), client_of(tenant)
    first = client.get(f"/api/v1/jobs/{job.id}").json()
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"/api/v1/jobs/{job.id}").json() == first
    assert [query["sql"] for query in queries if "jobs_job" in query["sql"]] == []


@pytest.mark.django_db
def test_a_redis_that_is_gone_costs_no_answer(tenant: Tenant, settings: Any) -> None:
    settings.CACHES = {"default": settings.CACHES["default"] | {"LOCATION": "redis://127.0.0.1:9/0"}}
    job, client = lifecycle.submit(tenant), client_of(tenant)
    started = time.monotonic()
    answer = client.get(f"/api/v1/jobs/{job.id}")
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")
    assert time.monotonic() - started < 5

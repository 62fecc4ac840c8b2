"""POST /jobs/plan: what would become of a job, with nothing stored and nothing used up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils.dateparse import parse_datetime

from jobs.models import DispatchReport, HostPolicy, HostState, IdempotencyRecord, Job, WorkerProcess
from jobs.states import State
from tenants.models import ApiKey, Scope, Tenant
from tests.factories import client_of, make_job, make_tenant

PLAN = "/api/v1/jobs/plan"
HOST = "example.com:443"
URL = {"url": "https://example.com/"}


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return client_of(tenant)


@pytest.fixture
def workers(db: None) -> None:
    WorkerProcess.objects.create(name="w", slots=10)


def plan(client: Client, **document: Any) -> dict[str, Any]:
    answer = client.post(PLAN, URL | document, content_type="application/json")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def seconds_until_start(client: Client, **document: Any) -> float:
    before = datetime.now(UTC)
    start = parse_datetime(plan(client, **document)["predicted_start"])
    assert start is not None
    return (start - before).total_seconds()


def report(**document: Any) -> None:
    DispatchReport.objects.update_or_create(id=1, defaults={"document": document, "at": Now()})


def test_it_tells_the_canonical_url_the_host_and_its_limits(client: Client, workers: None) -> None:
    HostPolicy.objects.create(host=HOST, rate=2.5, concurrency=1)
    HostState.objects.create(host=HOST, pace=0.5)
    found = plan(client, url="HTTPS://EXAMPLE.com:443/a/../b?x=1#y", params={"q": "ü"}, priority="high", method="HEAD")
    assert (found["url"], found["method"], found["priority"]) == ("https://example.com/b?x=1&q=%C3%BC", "HEAD", "high")
    assert found["host"] == {
        "name": HOST,
        "rate": 2.5,
        "burst": 5,
        "concurrency": 1,
        "pace": 0.5,
        "paused": False,
        "blocked_until": None,
    }
    assert found["quota"] == {name: {"limit": None, "left": None} for name in ("submit_rate", "max_queued")}
    assert found["ahead"] == {"same_host": 0, "queued": 0}


def test_nothing_is_stored_and_no_limit_is_used_up(client: Client, tenant: Tenant, workers: None) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(submit_rate=2, max_queued=1)
    for _ in range(5):
        answer = client.post(PLAN, URL, content_type="application/json", headers={"Idempotency-Key": "k"})
        assert answer.status_code == 200
        assert answer.json()["quota"] == {
            "submit_rate": {"limit": 2, "left": 2},
            "max_queued": {"limit": 1, "left": 1},
        }
    assert Job.objects.count() == IdempotencyRecord.objects.count() == 0
    assert client.post("/api/v1/jobs", URL, content_type="application/json").status_code == 202
    assert plan(client)["quota"]["max_queued"] == {"limit": 1, "left": 0}


def test_it_judges_as_submitting_does(client: Client) -> None:
    documents: list[Any] = [{"url": "ftp://a/"}, {**URL, "nope": 1, "tags": [1]}, [], {"url": "http://10.0.0.1/"}]
    for document in documents:
        answers = [client.post(path, document, content_type="application/json") for path in (PLAN, "/api/v1/jobs")]
        assert [answer.status_code for answer in answers] == [422, 422]
        assert answers[0].json()["errors"] == answers[1].json()["errors"]
    assert client.post(PLAN, "{", content_type="application/json").status_code == 400


def test_a_job_that_nothing_stands_before_starts_now(client: Client, workers: None) -> None:
    assert seconds_until_start(client) < 5


def test_run_at_and_a_block_are_waited_for(client: Client, workers: None) -> None:
    assert 3500 < seconds_until_start(client, run_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat()) < 3700
    HostState.objects.create(host=HOST, blocked_until=datetime.now(UTC) + timedelta(minutes=10), blocked_by="http_429")
    found = plan(client)
    assert found["waiting_on"] == "host_blocked"
    assert found["predicted_start"] == found["host"]["blocked_until"]


def test_what_waits_for_a_person_has_no_time(client: Client, tenant: Tenant, workers: None) -> None:
    HostPolicy.objects.create(host=HOST, paused=True)
    found = plan(client)
    assert (found["waiting_on"], found["predicted_start"], found["host"]["paused"]) == ("host_paused", None, True)
    HostPolicy.objects.all().delete()
    Tenant.objects.filter(pk=tenant.pk).update(paused=True)
    found = plan(client)
    assert (found["waiting_on"], found["predicted_start"]) == ("tenant_paused", None)


def test_without_a_worker_nobody_knows(client: Client) -> None:
    assert plan(client)["predicted_start"] is None


def test_own_jobs_for_the_host_come_before_at_its_rate(client: Client, tenant: Tenant, workers: None) -> None:
    HostPolicy.objects.create(host=HOST, rate=0.5, burst=2)
    for _ in range(11):
        make_job(tenant)
        make_job(make_tenant(), host="other.example:443")
    make_job(tenant, host="other.example:443")
    assert 20 <= seconds_until_start(client) < 25, "(11 + 1 - 2) / 0.5"
    assert plan(client)["ahead"] == {"same_host": 11, "queued": 12}
    HostState.objects.create(host=HOST, pace=0.5)
    assert 40 <= seconds_until_start(client) < 45


def test_in_a_full_pool_the_tenants_share_decides(client: Client, tenant: Tenant, workers: None) -> None:
    for _ in range(9):
        make_job(tenant, host="other.example:443")
    start = datetime.now(UTC) - timedelta(minutes=1)
    make_job(tenant, state=State.SUCCEEDED, claimed_at=start, finished_at=start + timedelta(seconds=4))
    assert seconds_until_start(client) < 5, "the pool is not full"
    report(window_full=True, waiting_tenants=5)
    assert 20 <= seconds_until_start(client) < 25, "10 jobs of 4 s on 10 slots for 5 tenants"
    Tenant.objects.filter(pk=tenant.pk).update(max_running=1)
    assert 40 <= seconds_until_start(client) < 45


@pytest.mark.parametrize(("scopes", "status"), [([Scope.JOBS_READ], 200), ([Scope.JOBS_WRITE], 200), ([], 403)])
def test_either_scope_will_do(client: Client, workers: None, scopes: list[str], status: int) -> None:
    ApiKey.objects.update(scopes=scopes)
    assert client.post(PLAN, URL, content_type="application/json").status_code == status
    assert Client().post(PLAN, URL, content_type="application/json").status_code == 401

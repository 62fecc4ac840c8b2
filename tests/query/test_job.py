"""GET /jobs/{id}, its attempts and its events."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.models import Job
from jobs.states import Outcome, Priority, State
from tenants.models import Tenant
from tests.factories import client_of, make_attempt, make_job, make_tenant

JOBS = "/api/v1/jobs"


def shown(client: Client, job: Job) -> dict[str, Any]:
    answer = client.get(f"{JOBS}/{job.id}")
    assert answer.status_code == 200
    document: dict[str, Any] = answer.json()
    return document


def test_a_queued_job_shows_exactly_the_contracts_fields(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant, priority=Priority.HIGH, tags=["a"], method="POST", body=b"x", headers={"X": "secret"})
    path = f"{JOBS}/{job.id}"
    document = shown(client, job)
    assert document == {
        "id": str(job.id),
        "status": "queued",
        "priority": "high",
        "url": "https://example.com/",
        "method": "POST",
        "host": "example.com:443",
        "tags": ["a"],
        "attempts": 0,
        "max_attempts": 5,
        "last_error": None,
        "waiting_on": "pool_busy",
        "eligible_at": document["eligible_at"],
        "created_at": document["created_at"],
        "started_at": None,
        "finished_at": None,
        "result": None,
        "links": {
            "self": path,
            "result": f"{path}/result",
            "attempts": f"{path}/attempts",
            "events": f"{path}/events",
            "cancel": f"{path}/cancel",
        },
    }
    assert document["created_at"].endswith("Z")
    assert datetime.fromisoformat(document["created_at"]) == job.created_at


def test_a_succeeded_job_shows_its_result(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant, state=State.SUCCEEDED)
    document = shown(client, job)
    assert document["status"] == "succeeded"
    assert document["waiting_on"] is None
    assert set(document["result"]) == {"bytes", "content_type", "http_status", "sha256", "final_url", "expires_at"}
    assert (document["result"]["bytes"], document["result"]["http_status"]) == (7, 200)


def test_a_failed_job_shows_its_last_error(client: Client, tenant: Tenant) -> None:
    document = shown(client, make_job(tenant, state=State.FAILED))
    assert document["result"] is None
    assert document["last_error"] == {
        "code": "http_404",
        "detail": "Gone.",
        "http_status": 404,
        "at": "2026-01-01T00:00:00.000000Z",
    }


LATER = datetime.now(UTC) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "pool_busy"),
        ({"run_at": LATER, "eligible_at": LATER}, "run_at"),
        ({"eligible_at": LATER, "attempts": 1}, "retry_backoff"),
        ({"run_at": LATER - timedelta(hours=2), "eligible_at": LATER, "attempts": 1}, "retry_backoff"),
        ({"run_at": LATER - timedelta(hours=2), "eligible_at": LATER - timedelta(hours=2)}, "pool_busy"),
        ({"state": State.RUNNING}, None),
        ({"state": State.CANCELLED}, None),
    ],
)
def test_waiting_on_says_why_a_queued_job_waits(
    client: Client, tenant: Tenant, values: dict[str, Any], reason: str | None
) -> None:
    assert shown(client, make_job(tenant, **values))["waiting_on"] == reason


@pytest.mark.parametrize("call", ["", "/attempts", "/events", "/result"])
def test_another_tenants_and_unknown_ids_are_404_alike(client: Client, call: str) -> None:
    others = make_job(make_tenant(), state=State.SUCCEEDED)
    bodies = []
    for job_id in (str(others.id), str(uuid.uuid4())):
        answer = client.get(f"{JOBS}/{job_id}{call}")
        assert answer.status_code == 404
        assert answer["Content-Type"] == "application/problem+json"
        body = answer.json()
        bodies.append((body["code"], body["title"], body["detail"]))
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("call", ["jobs", "jobs/{}", "jobs/{}/attempts", "jobs/{}/events", "events", "stats"])
def test_no_shared_cache_may_keep_what_one_caller_was_told(tenant: Tenant, call: str) -> None:
    """To such a cache an X-API-Key is a header like any other, and a 404 is good to keep too."""
    known, unknown = (f"/api/v1/{call}".format(job_id) for job_id in (make_job(tenant).id, uuid.uuid4()))
    for path in (known, unknown):
        for client in (client_of(tenant), Client()):
            assert client.get(path)["Cache-Control"] == "private, no-cache"


@pytest.mark.parametrize("job_id", ["1", "nonsense", "0198c6a2-b3c4-7d1e-9f00-11223344556", "%00", "a" * 5000])
def test_a_malformed_id_is_404(client: Client, job_id: str) -> None:
    answer = client.get(f"{JOBS}/{job_id}")
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/v1/", "/api/v1/jobs/", "/api/v1/jobs//attempts"])
def test_unknown_paths_are_404_as_problem(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


@pytest.mark.parametrize("call", ["", "/attempts", "/events", "/result"])
def test_reading_needs_the_read_scope_and_only_answers_get(tenant: Tenant, call: str) -> None:
    job = make_job(tenant, state=State.SUCCEEDED)
    path = f"{JOBS}/{job.id}{call}"
    assert client_of(tenant, scopes=["jobs:write"]).get(path).status_code == 403
    reader = client_of(tenant, scopes=["jobs:read"])
    assert reader.get(path).status_code == 200
    assert reader.head(path).status_code == 200
    assert reader.options(path).status_code == 200
    writer = client_of(tenant)
    for method in ("post", "put", "patch", "delete"):
        refused = getattr(writer, method)(path)
        assert refused.status_code == 405
        assert "GET" in refused["Allow"]


def test_attempts_are_told_oldest_first_and_the_running_one_last(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant, state=State.RUNNING, claim_no=2, attempts=2)
    make_attempt(
        job,
        error_code="http_503",
        error_detail="Busy.",
        http_status=503,
        timings={"dns": 0.001, "total": 0.5},
        redirects=[{"url": "http://example.com/a", "status": 302}],
        response_headers=[["Content-Type", "text/html"]],
        evidence={
            "connection": {"remote_address": "1.1.1.1", "http_version": "HTTP/1.1"},
            "charset": {"meta": "utf-8"},
        },
        body_snippet="<html>",
    )
    first, second = client.get(f"{JOBS}/{job.id}/attempts").json()
    assert first == {
        "number": 1,
        "outcome": "failed",
        "error": {"code": "http_503", "detail": "Busy."},
        "http_status": 503,
        "worker": "worker@test",
        "started_at": "2026-01-01T00:00:00.000000Z",
        "finished_at": "2026-01-01T00:00:01.000000Z",
        "timings": {"dns": 0.001, "connect": None, "tls": None, "first_byte": None, "total": 0.5},
        "redirects": [{"url": "http://example.com/a", "status": 302}],
        "response_headers": [["Content-Type", "text/html"]],
        "connection": {"remote_address": "1.1.1.1", "http_version": "HTTP/1.1", "tls_version": None},
        "charset": {"bom": None, "header": None, "meta": "utf-8"},
        "body_snippet": "<html>",
    }
    assert (second["number"], second["outcome"], second["finished_at"]) == (2, "running", None)
    assert set(second) == set(first)


def test_an_attempt_that_ended_between_the_two_reads_is_not_told_twice(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant, state=State.RUNNING)
    make_attempt(job, claim_no=1, outcome=Outcome.SUCCEEDED)
    assert [attempt["outcome"] for attempt in client.get(f"{JOBS}/{job.id}/attempts").json()] == ["succeeded"]


def test_a_job_that_never_ran_has_no_attempts(client: Client, tenant: Tenant) -> None:
    assert client.get(f"{JOBS}/{make_job(tenant).id}/attempts").json() == []


def test_events_tell_each_change_of_state(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant)
    client.post(f"{JOBS}/{job.id}/cancel")
    first, second = client.get(f"{JOBS}/{job.id}/events").json()
    assert {**first, "seq": 0, "at": ""} == {
        "seq": 0,
        "at": "",
        "from": None,
        "to": "queued",
        "reason": "submitted",
        "attempt": 0,
    }
    assert (second["from"], second["to"], second["reason"]) == ("queued", "cancelled", "cancelled")
    assert second["seq"] > first["seq"]


@pytest.mark.parametrize(("call", "most"), [("", 1), ("/attempts", 2), ("/events", 2), ("/result", 1)])
def test_reads_take_few_queries_however_much_there_is(client: Client, tenant: Tenant, call: str, most: int) -> None:
    job = make_job(tenant, state=State.SUCCEEDED)
    for claim_no in range(1, 9):
        make_attempt(job, claim_no=claim_no)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"{JOBS}/{job.id}{call}").status_code == 200
    assert len([query for query in queries if '"jobs_' in query["sql"]]) == most

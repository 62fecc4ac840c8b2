"""POST /jobs: what a caller gets, and what is stored."""

from __future__ import annotations

import base64
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.proxies import Proxy, unseal_proxy
from jobs.models import Job, JobEvent
from jobs.states import Priority, State
from tenants.models import Tenant
from tests.factories import client_of, make_job, make_tenant

pytestmark = pytest.mark.django_db
JOBS = "/api/v1/jobs"


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return client_of(tenant)


def submit(client: Client, **document: Any) -> Any:
    return client.post(JOBS, document, content_type="application/json")


def stored(answer: Any) -> Job:
    assert answer.status_code == 202, answer.content
    return Job.objects.get(pk=answer.json()["id"])


def test_a_submitted_job_is_answered_with_a_receipt(client: Client) -> None:
    answer = submit(client, url="https://example.com/")
    receipt = answer.json()
    path = f"{JOBS}/{receipt['id']}"
    assert answer.status_code == 202
    assert answer["Location"] == path
    assert answer["Content-Type"] == "application/json"
    assert uuid.UUID(receipt["id"]).version == 7
    assert datetime.fromisoformat(receipt["created_at"]).utcoffset() == timedelta(0)
    assert receipt == {
        "id": receipt["id"],
        "status": "queued",
        "created_at": receipt["created_at"],
        "links": {"self": path, "result": f"{path}/result", "attempts": f"{path}/attempts", "cancel": f"{path}/cancel"},
    }


def test_the_job_is_stored_for_the_callers_tenant_with_the_defaults(client: Client, tenant: Tenant) -> None:
    job = stored(submit(client, url="HTTPS://Example.com:443/a?b=c#d"))
    assert (job.tenant_id, job.state, job.priority, job.method) == (tenant.id, State.QUEUED, Priority.NORMAL, "GET")
    assert (job.url, job.host) == ("https://example.com/a?b=c", "example.com:443")
    assert (job.headers, job.body, job.tags, job.callback_url, job.run_at) == ({}, None, [], "", None)
    assert (job.deadline_seconds, job.max_attempts, job.max_bytes) == (30, 5, 50 * 1024 * 1024)
    assert (job.executor, job.follow_redirects, job.retry_unsafe) == ("http", True, False)
    assert job.eligible_at == job.created_at
    assert job.published_at is None


def test_what_the_caller_does_not_choose_has_the_models_defaults(client: Client, tenant: Tenant) -> None:
    job = stored(submit(client, url="https://example.com/"))
    by_the_model = make_job(tenant)
    own = {"id", "created_at", "eligible_at", "max_bytes"}
    names = [field.attname for field in Job._meta.concrete_fields if field.attname not in own]
    assert {name: getattr(job, name) for name in names} == {name: getattr(by_the_model, name) for name in names}


def test_every_field_of_the_contract_is_stored(client: Client) -> None:
    job = stored(
        submit(
            client,
            url="http://example.com/search?x=1",
            method="POST",
            params={"q": "snow & ice", "page": 2, "exact": True, "in": ["a", None, 1.5]},
            headers={"Accept": " text/html ", "X-Name": "Zoë"},
            body="grüße",
            priority="high",
            callback_url="https://caller.example/hook",
            tags=["a", "b"],
            deadline_seconds=300,
            max_attempts=10,
            max_bytes=1,
            retry_unsafe=True,
            executor="http",
            follow_redirects=False,
            respect_robots=True,
            proxy="http://user:hunter2@proxy.example:80",
        )
    )
    assert job.url == "http://example.com/search?x=1&q=snow%20%26%20ice&page=2&exact=true&in=a&in=&in=1.5"
    assert job.headers == {"Accept": "text/html", "X-Name": "Zoë"}
    assert bytes(job.body or b"") == "grüße".encode()
    assert (job.priority, job.tags, job.callback_url) == (Priority.HIGH, ["a", "b"], "https://caller.example/hook")
    assert (job.deadline_seconds, job.max_attempts, job.max_bytes) == (300, 10, 1)
    assert (job.retry_unsafe, job.follow_redirects, job.respect_robots) == (True, False, True)
    assert unseal_proxy(job.proxy) == Proxy("http", "proxy.example", 80, "user", "hunter2")
    assert "hunter2" not in job.proxy


def test_a_body_may_be_any_bytes_in_base64(client: Client) -> None:
    raw = bytes(range(256))
    job = stored(submit(client, url="http://example.com/", method="PUT", body_base64=base64.b64encode(raw).decode()))
    assert bytes(job.body or b"") == raw


def test_null_counts_as_not_given(client: Client) -> None:
    names = ["method", "params", "headers", "body", "body_base64", "priority", "callback_url", "tags", "run_at"]
    names += ["deadline_seconds", "max_attempts", "max_bytes", "retry_unsafe", "executor", "follow_redirects"]
    names += ["respect_robots", "proxy"]
    job = stored(submit(client, url="http://example.com/", **dict.fromkeys(names)))
    assert (job.method, job.max_attempts, job.tags) == ("GET", 5, [])
    assert (job.respect_robots, job.proxy) == (None, "")


def test_a_job_waits_for_its_run_at(client: Client) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    job = stored(submit(client, url="http://example.com/", run_at=later.isoformat()))
    assert job.run_at == later
    assert job.eligible_at == later


def test_a_run_at_in_the_past_means_now(client: Client) -> None:
    job = stored(submit(client, url="http://example.com/", run_at="2001-01-01T00:00:00Z"))
    assert job.run_at == datetime(2001, 1, 1, tzinfo=UTC)
    assert job.eligible_at == job.created_at


def test_the_first_event_is_written_by_the_database(client: Client) -> None:
    job = stored(submit(client, url="http://example.com/"))
    event = JobEvent.objects.get(job=job)
    assert (event.from_state, event.to_state, event.reason, event.attempt) == (None, State.QUEUED, "submitted", 0)


def test_intake_is_one_statement_beside_the_authentication(client: Client) -> None:
    submit(client, url="http://example.com/")  # the key's last use is noted with the first call of a minute
    with CaptureQueriesContext(connection) as queries:
        submit(client, url="http://example.com/")
    writes = [sql for query in queries if not (sql := query["sql"].lstrip()).startswith("SELECT")]
    assert len(writes) == 1, writes
    assert writes[0].startswith("INSERT INTO jobs_job")
    assert len(queries) <= 4


def test_a_key_without_the_write_scope_may_not_submit(tenant: Tenant) -> None:
    answer = submit(client_of(tenant, scopes=["jobs:read"]), url="http://example.com/")
    assert answer.status_code == 403
    assert answer.json()["code"] == "permission_denied"


def test_without_a_key_nothing_is_accepted() -> None:
    answer = submit(Client(), url="http://example.com/")
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert Job.objects.count() == 0


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_another_type_of_body_is_415(client: Client, content_type: str) -> None:
    answer = client.generic("POST", JOBS, json.dumps({"url": "http://example.com/"}), content_type=content_type)
    assert answer.status_code == 415
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "nonsense",
        '{"url": NaN}',
        '{"url": "\\ud800"}',
        '{"url": "a\\u0000"}',
        '{"url": 1, "url": 2}',
        "[" * 99999,
    ],
)
def test_a_body_that_is_not_json_is_400(client: Client, body: str) -> None:
    answer = client.generic("POST", JOBS, body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed_request"


def test_a_body_over_one_mebibyte_is_413(client: Client) -> None:
    answer = submit(client, url="http://example.com/", method="POST", body="x" * (1024 * 1024))
    assert answer.status_code == 413


@pytest.mark.parametrize("method", ["put", "patch", "delete"])
def test_other_methods_are_405_with_allow(client: Client, method: str) -> None:
    answer = getattr(client, method)(JOBS)
    assert answer.status_code == 405
    assert {"GET", "POST", "HEAD", "OPTIONS"} <= {name.strip() for name in answer["Allow"].split(",")}
    assert answer.json()["code"] == "method_not_allowed"

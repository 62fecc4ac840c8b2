"""GET /stats: the tenant's own figures, exact as its jobs move, at a cost that is bounded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import publisher, transitions
from jobs.models import Job, Tally
from jobs.states import Priority, State
from query import figures, stats
from tenants.models import Scope, Tenant
from tests import lifecycle
from tests.factories import client_of, make_job, make_tenant

STATS = "/api/v1/stats"


def tell() -> None:
    publisher.publish_finish_events(1000, lambda messages: None)


def read(client: Client) -> dict[str, Any]:
    answer = client.get(STATS)
    assert answer.status_code == 200, answer.content
    document: dict[str, Any] = answer.json()
    return document


def counts(client: Client) -> dict[str, int]:
    """By state, those that are not zero."""
    found = {state: sum(by_priority.values()) for state, by_priority in read(client)["jobs"].items()}
    return {state: count for state, count in found.items() if count}


def test_a_tenant_without_jobs(client: Client) -> None:
    document = read(client)
    none = {"high": 0, "normal": 0, "low": 0}
    assert document["jobs"] == {state.value: none for state in State}
    assert document["oldest_queued_seconds"] is None
    assert (document["bytes_stored"], document["at_least"], document["paused"]) == (0, [], False)
    assert document["limits"] == {
        name: {"limit": None, "left": None} for name in ("submit_rate", "max_queued", "max_running")
    }


@pytest.mark.parametrize("told", [False, True])
def test_jobs_are_counted_by_state_and_priority(client: Client, tenant: Tenant, told: bool) -> None:
    for number, state in enumerate(State, start=1):
        for _ in range(number):
            make_job(tenant, state=state)
            make_job(make_tenant(), state=state)
    make_job(tenant, state=State.SUCCEEDED, priority=Priority.LOW, result_bytes=1000)
    if told:
        tell()
    document = read(client)
    assert {state: found["normal"] for state, found in document["jobs"].items()} == {
        "queued": 1,
        "running": 2,
        "succeeded": 3,
        "failed": 4,
        "cancelled": 5,
    }
    assert document["jobs"]["succeeded"]["low"] == 1
    assert document["bytes_stored"] == 3 * 7 + 1000


def test_the_figures_stay_right_as_a_job_moves(client: Client, tenant: Tenant) -> None:
    job = lifecycle.submit(tenant)
    assert counts(client) == {"queued": 1}
    for _ in range(2):
        transitions.request_cancel(job.id, tenant.id)
        assert counts(client) == {"cancelled": 1}
        tell()
        assert counts(client) == {"cancelled": 1}
        transitions.retry(job.id, tenant.id)
        assert counts(client) == {"queued": 1}
    transitions.request_cancel(job.id, tenant.id)
    transitions.retry(job.id, tenant.id)
    assert counts(client) == {"queued": 1}, "retried before its end was told"
    tell()
    assert counts(client) == {"queued": 1}


def test_many_retried_at_once_are_taken_off(client: Client, tenant: Tenant) -> None:
    jobs = [make_job(tenant, state=State.FAILED) for _ in range(5)]
    tell()
    transitions.restart([job.id for job in jobs[:3]], reason="redriven")
    assert counts(client) == {"queued": 3, "failed": 2}
    assert Tally.objects.count() == 2


def test_what_has_expired_is_stored_no_more(client: Client, tenant: Tenant) -> None:
    make_job(tenant, state=State.SUCCEEDED, result_bytes=5)
    make_job(tenant, state=State.SUCCEEDED, result_bytes=9, result_expires_at=timezone.now() - timedelta(days=2))
    tell()
    assert read(client)["bytes_stored"] == 5
    assert counts(client) == {"succeeded": 2}


def test_the_oldest_queued_job_tells_its_age(client: Client, tenant: Tenant) -> None:
    make_job(make_tenant(), created_at=Now() - timedelta(hours=9))
    make_job(tenant, created_at=Now() - timedelta(hours=1))
    make_job(tenant)
    assert 3600 <= read(client)["oldest_queued_seconds"] < 3700


def test_limits_tell_what_is_left(client: Client, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(submit_rate=9, max_queued=3, max_running=1, paused=True)
    make_job(tenant)
    make_job(tenant, state=State.RUNNING)
    make_job(tenant, state=State.RUNNING)
    document = read(client)
    assert document["limits"] == {
        "submit_rate": {"limit": 9, "left": 9},
        "max_queued": {"limit": 3, "left": 2},
        "max_running": {"limit": 1, "left": 0},
    }
    assert document["paused"] is True


def test_a_count_at_its_bound_says_so(client: Client, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (figures, stats):
        monkeypatch.setattr(module, "COUNT_LIMIT", 3)
    Tenant.objects.filter(pk=tenant.pk).update(max_queued=100, max_running=100)
    for _ in range(4):
        make_job(tenant)
    make_job(tenant, state=State.RUNNING)
    document = read(client)
    assert document["at_least"] == ["queued"]
    assert sum(document["jobs"]["queued"].values()) == 3
    assert document["limits"]["max_queued"] == {"limit": 100, "left": None}
    assert document["limits"]["max_running"] == {"limit": 100, "left": 99}


def test_it_reads_no_ended_job_and_no_table_whole(client: Client, tenant: Tenant) -> None:
    for _ in range(3):
        make_job(tenant, state=State.SUCCEEDED)
    tell()
    with CaptureQueriesContext(connection) as queries:
        read(client)
    [sql] = [query["sql"] for query in queries if "jobs_tally" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(figures._BY_INDEX)
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        plan = str(cursor.fetchone()[0])
    assert "Seq Scan" not in plan
    assert {"job_tenant_state_newest", "job_finish_outbox", "tally_once"} <= {
        name for name in ("job_tenant_state_newest", "job_finish_outbox", "tally_once") if name in plan
    }
    Job.objects.all().delete()
    assert counts(client) == {"succeeded": 3}, "from the tallies alone"


def test_it_needs_the_scope_to_read_and_takes_no_parameters(tenant: Tenant, client: Client) -> None:
    assert client_of(tenant, scopes=[Scope.JOBS_WRITE]).get(STATS).status_code == 403
    answer = client.get(f"{STATS}?tenant=1")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")

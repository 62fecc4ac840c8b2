"""What reads say of why a job waits, by the rows and by the dispatcher's report."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.encoding import rfc3339
from jobs.dispatch_report import Reporter
from jobs.dispatcher import Dispatcher
from jobs.models import DispatchReport, HostPolicy, HostState, Job
from jobs.patience import REPORT_SECONDS
from jobs.states import State
from tenants.models import Tenant
from tests.factories import client_of, make_job, make_tenant

JOBS = "/api/v1/jobs"
HOST = "example.com:443"
PAST = datetime.now(UTC) - timedelta(minutes=1)
LATER = datetime.now(UTC) + timedelta(hours=1)


def report(age: float = 0.0, **document: Any) -> None:
    DispatchReport.objects.update_or_create(id=1, defaults={"document": document})
    DispatchReport.objects.update(at=Now() - timedelta(seconds=age))


def shown(client: Client, job: Job) -> tuple[str | None, str | None]:
    """As the job's own address and the list tell it, which must be the same."""
    one = client.get(f"{JOBS}/{job.id}").json()
    (listed,) = [item for item in client.get(JOBS).json()["items"] if item["id"] == str(job.id)]
    assert (listed["waiting_on"], listed["eligible_at"]) == (one["waiting_on"], one["eligible_at"])
    return one["waiting_on"], one["eligible_at"]


def test_a_paused_tenants_job_waits_for_nobody_knows_how_long(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant)
    Tenant.objects.filter(pk=tenant.pk).update(paused=True)
    assert shown(client, job) == ("tenant_paused", None)


def test_a_paused_host(client: Client, tenant: Tenant) -> None:
    HostPolicy.objects.create(host=HOST, paused=True)
    assert shown(client, make_job(tenant)) == ("host_paused", None)
    assert shown(client, make_job(tenant, host="other.example:443"))[0] == "pool_busy"


def test_a_blocked_host(client: Client, tenant: Tenant) -> None:
    HostState.objects.create(host=HOST, blocked_until=LATER, blocked_by="http_429")
    assert shown(client, make_job(tenant)) == ("host_blocked", rfc3339(LATER))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"hosts": {HOST: ["host_rate", None]}}, "host_rate"),
        ({"hosts": {"other.example:443": ["host_rate", None]}}, "pool_busy"),
        ({"window_full": True, "waiting_tenants": 3}, "fair_share"),
        ({"window_full": True, "waiting_tenants": 1}, "pool_busy"),
        ({"window_full": False, "waiting_tenants": 3, "hosts": {}, "tenants": {}}, "pool_busy"),
        ({}, "pool_busy"),
    ],
)
def test_what_the_dispatcher_reports(client: Client, tenant: Tenant, document: dict[str, Any], reason: str) -> None:
    report(**document)
    assert shown(client, make_job(tenant))[0] == reason


def test_the_time_at_which_a_host_may_be_called_again(client: Client, tenant: Tenant) -> None:
    report(hosts={HOST: ["host_rate", rfc3339(LATER)]})
    assert shown(client, make_job(tenant)) == ("host_rate", rfc3339(LATER))


def test_a_limit_that_the_dispatcher_met_is_told_to_its_tenant_alone(client: Client, tenant: Tenant) -> None:
    other = make_tenant()
    report(tenants={str(tenant.id): "tenant_limit"})
    assert shown(client, make_job(tenant))[0] == "tenant_limit"
    assert shown(client_of(other), make_job(other))[0] == "pool_busy"


def dispatch(limit: int = 10) -> None:
    """One pass of a publisher that has just begun to lead, and what it reports of it."""
    dispatcher = Dispatcher()
    chosen = dispatcher.choose(limit)
    Job.objects.filter(pk__in=[job.job_id for job in chosen]).update(published_at=Now())
    assert Reporter().report(dispatcher)


def test_reads_are_true_to_what_a_real_dispatcher_knows(client: Client, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(max_running=1)
    neighbour = make_tenant()
    Tenant.objects.filter(pk=neighbour.pk).update(max_running=50)
    mine = [make_job(tenant, host=f"h{index}.example:80", eligible_at=PAST) for index in range(2)]
    same_host = [make_job(neighbour, eligible_at=PAST) for _ in range(20)]
    dispatch()
    assert sorted(shown(client, job)[0] or "" for job in mine) == ["pool_busy", "tenant_limit"]
    theirs = [shown(client_of(neighbour), job)[0] for job in same_host]
    assert set(theirs) == {"pool_busy", "host_rate"}
    assert theirs.count("pool_busy") <= 5  # the default burst


def test_an_old_report_counts_for_nothing(client: Client, tenant: Tenant) -> None:
    report(age=REPORT_SECONDS + 1, window_full=True, waiting_tenants=3, hosts={HOST: ["host_rate", None]})
    assert shown(client, make_job(tenant))[0] == "pool_busy"


def test_a_job_that_is_with_the_bus_waits_for_a_slot(client: Client, tenant: Tenant) -> None:
    report(window_full=True, waiting_tenants=3)
    assert shown(client, make_job(tenant, published_at=Now()))[0] == "pool_busy"


def test_a_job_that_was_put_back_says_why_and_until_when(client: Client, tenant: Tenant) -> None:
    job = make_job(tenant, reason="host_rate", eligible_at=LATER)
    assert shown(client, job) == ("host_rate", rfc3339(LATER))


def test_a_job_that_is_retried_says_at_once_what_it_waits_for(client: Client, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(paused=True)
    job = make_job(tenant, state=State.FAILED)
    document = client.post(f"{JOBS}/{job.id}/retry").json()
    assert (document["waiting_on"], document["eligible_at"]) == ("tenant_paused", None)


def queries_of(act: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as queries:
        act()
    return len(queries)


def test_only_a_queued_job_costs_one_query_more(client: Client, tenant: Tenant) -> None:
    client.get(JOBS)
    waits, ended = make_job(tenant), make_job(tenant, state=State.FAILED)
    for_ended = queries_of(lambda: client.get(f"{JOBS}/{ended.id}"))
    assert queries_of(lambda: client.get(f"{JOBS}/{waits.id}")) == for_ended + 1


def test_a_list_of_a_hundred_queued_jobs_of_many_hosts_costs_one_query_more(client: Client, tenant: Tenant) -> None:
    client.get(JOBS)
    make_job(tenant, state=State.FAILED)
    for_none = queries_of(lambda: client.get(JOBS))
    for index in range(99):
        make_job(tenant, host=f"h{index}.example:443")
    report(hosts={f"h{index}.example:443": ["host_rate", None] for index in range(50)})
    assert queries_of(lambda: client.get(JOBS)) == for_none + 1
    told = [item["waiting_on"] for item in client.get(JOBS).json()["items"]]
    assert (told.count("host_rate"), told.count("pool_busy")) == (50, 49)

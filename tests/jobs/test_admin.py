"""The admin of the jobs app: everything can be seen, nothing written; failed jobs can be redriven."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import tenant_admin
from jobs.admin import COUNTED_ROWS, CappedPaginator
from jobs.models import HostState, IdempotencyRecord, Job, WorkerProcess
from jobs.states import State
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import make_attempt, make_job, make_tenant, staff_client

pytestmark = pytest.mark.django_db
LIST = "/admin/jobs/job/"


@pytest.fixture
def staff() -> Client:
    return staff_client()


def listed(staff: Client, **parameters: str) -> set[str]:
    answer = staff.get(LIST, parameters)
    assert answer.status_code == 200, answer
    page: Any = answer.context["cl"]
    return {str(job.pk) for job in page.result_list}


def test_the_list_shows_where_jobs_stand(staff: Client) -> None:
    job = make_job(make_tenant("Acme"), state=State.FAILED)
    text = staff.get(LIST).content.decode()
    for shown in (str(job.id), "Acme", "failed", "example.com:443", "1 of 5", "http_404"):
        assert shown in text


def test_search_by_id_host_and_url(staff: Client) -> None:
    tenant = make_tenant()
    one = make_job(tenant, host="one.example:443", url="https://one.example/a/path")
    two = make_job(tenant, host="two.example:443", url="https://two.example/other")
    assert listed(staff, q=str(one.id)) == {str(one.id)}
    assert listed(staff, q=f" {one.id} ".upper()) == {str(one.id)}
    assert listed(staff, q="TWO.ex") == {str(two.id)}
    assert listed(staff, q="/a/pa") == {str(one.id)}
    assert listed(staff, q=str(uuid.uuid4())) == set()
    assert listed(staff, q="a\0b") == {str(one.id), str(two.id)}


def test_the_list_says_what_queued_jobs_wait_for_in_one_query_for_all(staff: Client) -> None:
    paused, other = make_tenant(), make_tenant()
    Tenant.objects.filter(pk=paused.pk).update(paused=True)
    make_job(paused)
    staff.get(LIST)
    with CaptureQueriesContext(connection) as for_one:
        staff.get(LIST)
    HostState.objects.create(
        host="slow.example:443", blocked_until=timezone.now() + timedelta(hours=1), blocked_by="http_429"
    )
    for index in range(20):
        make_job(other, host=f"h{index}.example:443")
    make_job(other, host="slow.example:443")
    with CaptureQueriesContext(connection) as for_many:
        text = staff.get(LIST).content.decode()
    assert "tenant_paused" in text
    assert "host_blocked until 20" in text
    assert text.count("pool_busy") == 20
    assert len(for_many) == len(for_one)


def test_a_jobs_page_says_what_it_waits_for(staff: Client) -> None:
    job = make_job(make_tenant(), run_at=timezone.now() + timedelta(days=1), eligible_at="2999-01-31T12:00:00Z")
    assert "retry_backoff until 2999-01-31 12:00:00" in staff.get(f"{LIST}{job.id}/change/").content.decode()


def test_tenants_show_their_limits_and_how_much_of_them_is_used(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_admin, "COUNTED", 3)
    tenant = make_tenant("Acme")
    Tenant.objects.filter(pk=tenant.pk).update(max_queued=777)
    for state, count in ((State.QUEUED, 5), (State.RUNNING, 2)):
        for _ in range(count):
            make_job(tenant, state=state)
    make_tenant()
    staff.get("/admin/tenants/tenant/")
    with CaptureQueriesContext(connection) as for_two:
        text = staff.get("/admin/tenants/tenant/").content.decode()
    assert "777" in text
    assert '<td class="field-queued">over 3</td><td class="field-running">2</td>' in text
    for _ in range(10):
        make_tenant()
    with CaptureQueriesContext(connection) as for_many:
        staff.get("/admin/tenants/tenant/")
    assert len(for_many) == len(for_two)


def test_filters(staff: Client) -> None:
    tenant = make_tenant()
    failed = make_job(tenant, state=State.FAILED)
    make_job(tenant)
    assert listed(staff, state__exact="failed") == {str(failed.id)}
    assert listed(staff, priority__exact="1") == set()


def test_a_jobs_page_shows_attempts_and_events_with_foreign_text_escaped(staff: Client) -> None:
    hostile = "<script>alert(1)</script>"
    job = make_job(make_tenant(), state=State.FAILED, headers={"X-A": hostile}, error_detail=hostile, body=b"12345")
    make_attempt(
        job,
        error_code="http_404",
        body_snippet=hostile,
        response_headers=[["X", hostile]],
        error_detail=hostile,
        evidence={"connection": {"remote_address": "1.1.1.1"}, "charset": {"bom": None, "header": hostile}},
    )
    answer = staff.get(f"{LIST}{job.id}/change/")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert hostile not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6
    assert "header &lt;script&gt;alert(1)&lt;/script&gt;, remote_address 1.1.1.1" in text
    assert "5 bytes" in text
    assert "2026-01-01 00:00:01 UTC" in text
    assert "submitted" in text


@pytest.mark.parametrize("model", ["job", "idempotencyrecord", "workerprocess"])
def test_nothing_can_be_added_changed_or_deleted(staff: Client, model: str) -> None:
    tenant = make_tenant()
    job = make_job(tenant)
    record = IdempotencyRecord.objects.create(tenant=tenant, call="POST /jobs", key="k", fingerprint="", job=job)
    process = WorkerProcess.objects.create(name="w", slots=1)
    pk = {"job": job.pk, "idempotencyrecord": record.pk, "workerprocess": process.pk}[model]
    base = f"/admin/jobs/{model}/"
    assert staff.get(base).status_code == 200
    assert staff.get(f"{base}{pk}/change/").status_code == 200
    assert staff.get(f"{base}add/").status_code == 403
    assert staff.post(f"{base}{pk}/change/", {"state": "cancelled"}).status_code == 403
    assert staff.get(f"{base}{pk}/delete/").status_code == 403
    assert staff.post(base, {"action": "delete_selected", "_selected_action": [str(pk)]}).status_code in (200, 302, 403)
    assert Job.objects.get().state == State.QUEUED
    assert IdempotencyRecord.objects.count() == WorkerProcess.objects.count() == 1


def redrive(client: Client, *jobs: Job, across: bool = False) -> Any:
    chosen = {"action": "redrive", "_selected_action": [str(job.pk) for job in jobs], "select_across": str(int(across))}
    return client.post(f"{LIST}?state__exact=failed" if across else LIST, chosen, follow=True)


def test_failed_jobs_are_redriven_and_others_left(staff: Client) -> None:
    tenant = make_tenant()
    failed, running = make_job(tenant, state=State.FAILED), make_job(tenant, state=State.RUNNING)

    assert "1 redriven;" in redrive(staff, failed, running).content.decode()

    failed.refresh_from_db()
    running.refresh_from_db()
    assert (failed.state, failed.attempts, running.state) == (State.QUEUED, 0, State.RUNNING)


def test_all_that_a_filter_shows_can_be_redriven_at_once(staff: Client) -> None:
    tenant = make_tenant()
    jobs = [make_job(tenant, state=State.FAILED) for _ in range(60)]  # more than a page
    make_job(tenant, state=State.CANCELLED)

    assert "60 redriven;" in redrive(staff, jobs[0], across=True).content.decode()
    assert Job.objects.filter(state=State.QUEUED).count() == 60


def test_who_may_only_look_is_offered_no_redrive() -> None:
    user = get_user_model().objects.create_user("watcher", password="secret", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    watcher = Client()
    watcher.force_login(user)
    job = make_job(make_tenant(), state=State.FAILED)

    assert "Redrive" not in watcher.get(LIST).content.decode()
    redrive(watcher, job)

    job.refresh_from_db()
    assert job.state == State.FAILED


def test_the_list_takes_as_many_queries_for_many_jobs_as_for_one(staff: Client) -> None:
    make_job(make_tenant())
    staff.get(LIST)
    with CaptureQueriesContext(connection) as for_one:
        staff.get(LIST)
    for _ in range(20):
        make_job(make_tenant())
    with CaptureQueriesContext(connection) as for_many:
        staff.get(LIST)
    assert len(for_one) == len(for_many)
    counts = [query["sql"] for query in for_many if "COUNT(" in query["sql"] and "jobs_job" in query["sql"]]
    assert counts
    assert all(f"LIMIT {COUNTED_ROWS}" in sql for sql in counts)


def test_a_count_stops_where_it_would_take_long() -> None:
    tenant = make_tenant()
    for _ in range(3):
        make_job(tenant)
    assert CappedPaginator(Job.objects.order_by("-id"), 2).num_pages == 2


def test_without_a_login_nothing_is_shown() -> None:
    answer = Client().get(LIST)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("table", ["attempt", "jobevent"])
@pytest.mark.parametrize("text", ["", "http_404", "not-a-uuid", "\x00", "{job}"])
def test_attempts_and_events_have_lists_that_can_be_searched(tenant: Tenant, table: str, text: str) -> None:
    job = lifecycle.submit(tenant)
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_404", timings={"dns": 0.0012, "total": 0.5}))
    answer = staff_client().get(f"/admin/jobs/{table}/", {"q": text.format(job=job.id)})
    assert answer.status_code == 200
    if text in ("", "{job}"):
        assert str(job.id) in answer.content.decode()


def test_an_attempt_tells_its_timings_in_milliseconds(tenant: Tenant) -> None:
    job = lifecycle.submit(tenant)
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_404", timings={"dns": 0.0012, "total": 0.5}))
    for page in (f"/admin/jobs/job/{job.id}/change/", f"/admin/jobs/attempt/{job.attempt_set.get().pk}/change/"):
        assert "dns 1.2 ms, total 500.0 ms" in staff_client().get(page).content.decode()


def test_a_worker_process_that_is_gone_is_told_from_one_that_lives(settings: Any) -> None:
    WorkerProcess.objects.create(name="living", slots=5)
    WorkerProcess.objects.create(name="gone", slots=5)
    WorkerProcess.objects.filter(name="gone").update(seen_at=timezone.now() - timedelta(hours=1))
    page = staff_client().get("/admin/jobs/workerprocess/").content.decode()
    assert (page.count('alt="True"'), page.count('alt="False"')) == (1, 1)

"""The API in a browser: a person who is logged in sees and submits their tenant's jobs."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from jobs.models import Job
from jobs.states import State
from tenants.models import Membership, Tenant
from tests.factories import make_attempt, make_job, make_tenant, member_client

JOBS = "/api/v1/jobs"


@pytest.fixture
def person(tenant: Tenant) -> Client:
    return member_client(tenant)


@pytest.mark.parametrize("call", ["", "/attempts", "/events", "/result"])
def test_a_person_sees_pages_of_their_tenants_jobs(person: Client, tenant: Tenant, call: str) -> None:
    job = make_job(tenant, state=State.SUCCEEDED)
    answer = person.get(f"{JOBS}/{job.id}{call}")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/html")
    assert person.get(f"{JOBS}/{make_job(make_tenant()).id}{call}").status_code == 404


def test_the_list_shows_the_jobs_themselves(person: Client, tenant: Tenant) -> None:
    job, other = make_job(tenant), make_job(make_tenant())
    text = person.get(JOBS).content.decode()
    assert str(job.id) in text
    assert str(other.id) not in text
    assert "binary content" not in text


def test_errors_are_pages_for_a_browser(person: Client) -> None:
    answer = person.get(f"{JOBS}?limit=0")
    assert answer.status_code == 400
    assert answer["Content-Type"].startswith("text/html")
    assert "invalid_parameter" in answer.content.decode()


def test_a_browser_that_is_not_logged_in_is_shown_where_to_log_in() -> None:
    answer = Client(headers={"Accept": "text/html"}).get(JOBS)
    assert answer.status_code == 401
    assert answer["Content-Type"].startswith("text/html")
    assert "/accounts/login/?next=/api/v1/jobs" in answer.content.decode()


def test_logging_in_needs_no_staff_rights_and_leads_to_the_jobs(tenant: Tenant) -> None:
    user = get_user_model().objects.create_user("ann", password="secret")
    Membership.objects.create(user=user, tenant=tenant)
    browser = Client(headers={"Accept": "text/html"})
    answer = browser.post("/accounts/login/", {"username": "ann", "password": "secret"})
    assert (answer.status_code, answer["Location"]) == (302, JOBS)
    assert browser.get(JOBS).status_code == 200


def test_what_targets_sent_is_escaped(person: Client, tenant: Tenant) -> None:
    job = make_job(tenant, state=State.FAILED)
    make_attempt(job, error_code="http_404", body_snippet="<script>alert(1)</script>")
    assert "<script>alert(1)" not in person.get(f"{JOBS}/{job.id}/attempts").content.decode()


def test_submitting_takes_the_pages_token(tenant: Tenant) -> None:
    user = get_user_model().objects.create_user("bob", password="secret")
    Membership.objects.create(user=user, tenant=tenant)
    browser = Client(enforce_csrf_checks=True, headers={"Accept": "text/html"})
    browser.force_login(user)
    document = {"url": "http://example.com/"}
    assert browser.post(JOBS, document, content_type="application/json").status_code == 403
    browser.get(JOBS)
    token = {"X-CSRFToken": browser.cookies["csrftoken"].value}
    answer = browser.post(JOBS, document, content_type="application/json", headers=token)
    assert answer.status_code == 202
    assert Job.objects.get().tenant_id == tenant.id


@pytest.mark.parametrize("call", ["cancel", "retry"])
def test_a_button_without_a_body_works_with_the_pages_token(tenant: Tenant, call: str) -> None:
    job = make_job(tenant, state=State.QUEUED if call == "cancel" else State.FAILED)
    user = get_user_model().objects.create_user("cleo", password="secret")
    Membership.objects.create(user=user, tenant=tenant)
    browser = Client(enforce_csrf_checks=True, headers={"Accept": "text/html"})
    browser.force_login(user)
    path = f"{JOBS}/{job.id}/{call}"
    assert browser.post(path, b"", content_type="application/json").status_code == 403
    browser.get(path)
    token = {"X-CSRFToken": browser.cookies["csrftoken"].value}
    answer = browser.post(path, b"", content_type="application/json", headers=token)
    assert answer.status_code == (200 if call == "cancel" else 202), answer.content
    job.refresh_from_db()
    assert job.state == (State.CANCELLED if call == "cancel" else State.QUEUED)


@pytest.mark.parametrize(
    ("call", "types"),
    [("/batch", ["application/json", "application/x-ndjson", "application/jsonl"]), ("/plan", ["application/json"])],
)
def test_batch_and_plan_have_a_form_for_a_raw_body(person: Client, call: str, types: list[str]) -> None:
    answer = person.get(f"{JOBS}{call}")
    assert answer.status_code == 405, "there is nothing to read; the page shows the form all the same"
    text = answer.content.decode()
    assert "<form" in text
    assert [kind for kind in types if f'value="{kind}"' not in text] == []
    document = {"url": "http://example.com/"}
    sent = person.post(f"{JOBS}{call}", [document] if call == "/batch" else document, content_type="application/json")
    assert sent.status_code == (202 if call == "/batch" else 200)


@pytest.mark.parametrize("call", ["events", "stats"])
def test_a_person_sees_the_tenants_feed_and_figures(person: Client, call: str) -> None:
    answer = person.get(f"/api/v1/{call}")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/html")


def test_the_list_has_filters_that_remember_what_was_chosen(person: Client, tenant: Tenant) -> None:
    for _ in range(2):
        make_job(tenant, tags=['a "b"'])
    text = person.get(JOBS, {"status": "queued", "tag": 'a "b"', "limit": "1"}).content.decode()
    for name in ("status", "priority", "host", "tag", "created_after", "created_before"):
        assert f'name="{name}"' in text
    assert 'data-value="queued"' in text
    assert 'value="a &quot;b&quot;"' in text, "as it was typed, and never as markup"
    assert "Older jobs" in text, "the next page is a click away"
    assert "Older jobs" not in person.get(JOBS).content.decode()


def test_submitting_and_planning_have_fields_for_a_job(person: Client) -> None:
    for path in (JOBS, f"{JOBS}/plan"):
        text = person.get(path).content.decode()
        assert [
            name for name in ("url", "method", "priority", "tags", "run_at") if f'data-field="{name}"' not in text
        ] == []
    for path in (f"{JOBS}/batch", "/api/v1/webhook-endpoints"):
        assert "data-field" not in person.get(path).content.decode()


def test_every_page_leads_to_the_others(person: Client) -> None:
    text = person.get("/api/v1/stats").content.decode()
    for path in ("jobs", "jobs/batch", "jobs/plan", "events", "stats", "webhook-endpoints", "deliveries", "docs"):
        assert f'href="/api/v1/{path}"' in text


def test_an_address_that_only_takes_a_body_shows_its_form_alone(person: Client, tenant: Tenant) -> None:
    failed = make_job(tenant, state=State.FAILED)
    assert f"{JOBS}/{failed.id}/retry" in person.get(f"{JOBS}/{failed.id}").content.decode()
    assert "/retry" not in person.get(f"{JOBS}/{make_job(tenant).id}").content.decode()
    for path in (f"{JOBS}/batch", f"{JOBS}/{failed.id}/retry"):
        assert 'class="only-a-form"' in person.get(path).content.decode()
    assert 'class="only-a-form"' not in person.get(JOBS).content.decode()


def test_the_pages_scripts_and_styles_come_from_here(person: Client) -> None:
    text = person.get(JOBS).content.decode()
    sources = re.findall(r'<(?:script[^>]*|link[^>]*|img[^>]*) (?:src|href)="([^"]*)"', text)
    assert len(sources) > 5
    assert [source for source in sources if not source.startswith("/static/")] == []
    assert person.get("/static/query/browse.css").status_code == 200

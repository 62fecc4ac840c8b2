"""The API in a browser: a person who is logged in sees and submits their tenant's jobs."""

from __future__ import annotations

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

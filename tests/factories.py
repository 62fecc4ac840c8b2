"""Rows and clients for tests, as short to ask for as what they are."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.test import Client

from jobs.models import Attempt, Job
from jobs.states import FINAL, Outcome, State
from tenants.models import ApiKey, Membership, Tenant

_numbers = itertools.count(1)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def make_tenant(name: str = "") -> Tenant:
    return Tenant.objects.create(name=name or f"tenant {next(_numbers)}")


def client_of(tenant: Tenant, *, scopes: list[str] | None = None) -> Client:
    """A client that calls with a key of the tenant."""
    _, plain = ApiKey.issue(tenant, scopes=scopes)
    return Client(headers={"Authorization": f"Bearer {plain}", "Accept": "application/json"})


def member_client(tenant: Tenant) -> Client:
    """A person's browser, logged in for the tenant."""
    user = get_user_model().objects.create_user(f"person{next(_numbers)}", password="secret")
    Membership.objects.create(user=user, tenant=tenant)
    client = Client(headers={"Accept": "text/html"})
    client.force_login(user)
    return client


def staff_client() -> Client:
    user = get_user_model().objects.create_superuser(f"operator{next(_numbers)}", password="secret")
    client = Client()
    client.force_login(user)
    return client


def make_job(tenant: Tenant, *, state: State = State.QUEUED, **values: Any) -> Job:
    """A stored job in `state`, with whatever the database asks of that state."""
    defaults: dict[str, Any] = {
        "tenant": tenant,
        "url": "https://example.com/",
        "host": "example.com:443",
        "deadline_seconds": 30,
        "max_attempts": 5,
        "max_bytes": 1000,
        "state": state,
    }
    return Job.objects.create(**{**defaults, **_state_values(state), **values})


def _state_values(state: State) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if state != State.QUEUED:
        values = {"claim_no": 1, "attempts": 1, "started_at": LONG_AGO, "claimed_at": LONG_AGO, "worker": "worker@test"}
    if state == State.RUNNING:
        values["lease_expires_at"] = datetime.now(UTC) + timedelta(minutes=1)
    if state in FINAL:
        values["finished_at"] = LONG_AGO + timedelta(seconds=1)
    if state == State.FAILED:
        values |= {"error_code": "http_404", "error_detail": "Gone.", "error_http_status": 404, "error_at": LONG_AGO}
    if state == State.SUCCEEDED:
        values |= {
            "result_key": f"results/{uuid.uuid4()}/1",
            "result_bytes": 7,
            "result_content_type": "text/plain",
            "result_http_status": 200,
            "result_sha256": "0" * 64,
            "result_final_url": "https://example.com/",
            "result_expires_at": datetime.now(UTC) + timedelta(days=30),
        }
    return values


def make_attempt(job: Job, *, claim_no: int = 1, outcome: Outcome = Outcome.FAILED, **values: Any) -> Attempt:
    defaults: dict[str, Any] = {
        "number": claim_no,
        "worker": "worker@test",
        "started_at": LONG_AGO,
        "finished_at": LONG_AGO + timedelta(seconds=1),
    }
    return Attempt.objects.create(job=job, claim_no=claim_no, outcome=outcome, **{**defaults, **values})

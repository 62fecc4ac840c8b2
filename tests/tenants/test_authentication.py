"""Who may call, and what a caller who may not is told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from tenants.models import USE_NOTED_EVERY, ApiKey, Membership, Tenant

JOBS = "/api/v1/jobs"

pytestmark = pytest.mark.django_db


def get(**headers: str) -> int:
    return Client().get(JOBS, headers={name.replace("_", "-"): value for name, value in headers.items()}).status_code


def test_a_key_is_taken_as_bearer_or_in_its_own_header(api_key: str) -> None:
    assert get(Authorization=f"Bearer {api_key}") == 200
    assert get(Authorization=f"bEARER  {api_key} ") == 200
    assert get(X_API_Key=api_key) == 200
    assert get(Authorization=f"Bearer {api_key}", X_API_Key=api_key) == 200


def test_two_different_keys_are_refused(tenant: Tenant, api_key: str) -> None:
    other = ApiKey.issue(tenant)[1]
    assert get(Authorization=f"Bearer {api_key}", X_API_Key=other) == 401


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer nonsense",
        "Bearer a b",
        "Bearer sj_\u0131",
        "Bearer " + "x" * 10_000,
    ],
)
def test_what_is_no_key_is_401_with_a_challenge(tenant: Tenant, header: str) -> None:
    response = Client().get(JOBS, headers={"Authorization": header})
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")
    assert response.json()["code"] == "not_authenticated"


def test_a_wrong_secret_is_refused(api_key: str) -> None:
    other = ("A" if api_key[-1] != "A" else "B") + ""
    assert get(Authorization=f"Bearer {api_key[:-1]}{other}") == 401


def test_an_expired_key_is_refused(tenant: Tenant) -> None:
    _, past = ApiKey.issue(tenant, expires_at=timezone.now() - timedelta(seconds=1))
    _, ahead = ApiKey.issue(tenant, expires_at=timezone.now() + timedelta(hours=1))
    assert get(Authorization=f"Bearer {past}") == 401
    assert get(Authorization=f"Bearer {ahead}") == 200


def test_a_revoked_key_is_refused_and_the_others_live(tenant: Tenant, api_key: str) -> None:
    key, plain = ApiKey.issue(tenant)
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=Now())
    assert get(Authorization=f"Bearer {plain}") == 401
    assert get(Authorization=f"Bearer {api_key}") == 200


def test_the_secret_is_not_stored(api_key: str) -> None:
    key = ApiKey.objects.get()
    secret = api_key.removeprefix(f"{key.prefix}_")
    assert len(secret) == 32
    assert secret not in str(vars(key))
    assert len(bytes.fromhex(key.secret_sha256)) == 32


def test_a_key_may_do_what_its_scopes_say(tenant: Tenant) -> None:
    reader = Client(headers={"Authorization": f"Bearer {ApiKey.issue(tenant, scopes=['jobs:read'])[1]}"})
    writer = Client(headers={"Authorization": f"Bearer {ApiKey.issue(tenant, scopes=['jobs:write'])[1]}"})
    body = {"url": "http://a.example/"}
    assert reader.get(JOBS).status_code == 200
    assert writer.post(JOBS, body, content_type="application/json").status_code == 202
    assert writer.get(JOBS).status_code == 403
    refused = reader.post(JOBS, body, content_type="application/json")
    assert refused.status_code == 403
    assert refused.json()["code"] == "permission_denied"
    assert "jobs:write" in refused.json()["detail"]


def test_the_use_is_noted_at_most_once_a_minute(
    api_key: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    assert ApiKey.objects.get().last_used_at is None
    with django_assert_num_queries(2):
        authenticate(api_key)
    first = ApiKey.objects.get().last_used_at
    assert first is not None
    with django_assert_num_queries(1):
        authenticate(api_key)
    assert ApiKey.objects.get().last_used_at == first
    ApiKey.objects.update(last_used_at=Now() - USE_NOTED_EVERY)
    with django_assert_num_queries(2):
        authenticate(api_key)


def authenticate(plain: str) -> None:
    key = ApiKey.find(plain)
    assert key is not None
    assert key.tenant.name == "acme"
    key.touch()


def test_what_cannot_be_a_key_costs_no_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(0):
        assert ApiKey.find("sj_short_key") is None
        assert ApiKey.find("x" * 1_000_000) is None
        assert ApiKey.find("sj_aaaaaaaaaaaa_\0") is None


@pytest.fixture
def person(tenant: Tenant) -> User:
    """Someone who may log in, and acts for the tenant."""
    user = User.objects.create_user("alice", password="wonderland-2026")
    Membership.objects.create(user=user, tenant=tenant)
    return user


def test_a_person_acts_for_the_tenant_of_their_membership(person: User, api: Client) -> None:
    job = api.post(JOBS, {"url": "http://a.example/"}, content_type="application/json").json()["id"]
    browser = Client()
    browser.force_login(person)
    assert [item["id"] for item in browser.get(JOBS).json()["items"]] == [job]


def test_a_person_without_a_tenant_is_told_what_to_do(db: None) -> None:
    browser = Client()
    browser.force_login(User.objects.create_user("bob"))
    response = browser.get(JOBS)
    assert response.status_code == 403
    assert "manage.py create_membership bob" in response.json()["detail"]


def test_a_persons_writes_need_the_csrf_token(person: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(person)
    assert browser.post(JOBS, {"url": "http://a.example/"}, content_type="application/json").status_code == 403


def test_a_key_needs_no_csrf_token(api_key: str) -> None:
    client = Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {api_key}"})
    assert client.post(JOBS, {"url": "http://a.example/"}, content_type="application/json").status_code == 202


def test_a_bad_key_is_refused_although_a_person_is_logged_in(person: User) -> None:
    browser = Client(headers={"X-API-Key": "nonsense"})
    browser.force_login(person)
    assert browser.get(JOBS).status_code == 401


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "nonsense"}])
def test_an_error_is_a_page_in_the_browsable_api(tenant: Tenant, headers: dict[str, str]) -> None:
    response = Client(headers={**headers, "Accept": "text/html"}).get(JOBS)
    assert response.status_code == 401
    assert response["Content-Type"].startswith("text/html")

"""What operators see and do in the admin."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from core.proxies import Proxy, unseal_proxy
from tenants.models import ApiKey, Membership, Tenant

KEYS = "/admin/tenants/apikey/"

pytestmark = pytest.mark.django_db


def test_making_a_key_shows_its_text_once(admin_client: Client, tenant: Tenant) -> None:
    form = {"tenant": str(tenant.pk), "scopes": "jobs:read", "expires_at_0": "", "expires_at_1": ""}
    page = admin_client.post(f"{KEYS}add/", form, follow=True).content.decode()
    key = ApiKey.objects.get()
    plain = page.partition("<code>")[2].partition("</code>")[0]
    assert ApiKey.find(plain) == key
    assert key.scopes == ["jobs:read"]
    assert plain not in admin_client.get(KEYS).content.decode()


@pytest.mark.parametrize("scopes", [[], ["jobs:all"]])
def test_a_key_without_a_known_scope_is_refused_in_words(
    admin_client: Client, tenant: Tenant, scopes: list[str]
) -> None:
    form = {"tenant": str(tenant.pk), "scopes": scopes, "expires_at_0": "", "expires_at_1": ""}
    assert admin_client.post(f"{KEYS}add/", form).status_code == 200
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("place", [KEYS, KEYS + "{}/change/"])
def test_the_hash_of_a_key_is_never_shown(admin_client: Client, tenant: Tenant, place: str) -> None:
    key, _ = ApiKey.issue(tenant)
    page = admin_client.get(place.format(key.pk)).content.decode()
    assert key.prefix in page
    assert key.secret_sha256 not in page


def test_keys_are_revoked_by_an_action(admin_client: Client, tenant: Tenant) -> None:
    key, plain = ApiKey.issue(tenant)
    admin_client.post(KEYS, {"action": "revoke", "_selected_action": [str(key.pk)]})
    assert ApiKey.find(plain) is None


def test_a_key_is_never_deleted(admin_client: Client, tenant: Tenant) -> None:
    key, _ = ApiKey.issue(tenant)
    assert admin_client.post(f"{KEYS}{key.pk}/delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in admin_client.get(KEYS).content.decode()


def test_keys_are_filtered_by_what_they_are_now(admin_client: Client, tenant: Tenant) -> None:
    live, _ = ApiKey.issue(tenant)
    expired, _ = ApiKey.issue(tenant, expires_at=timezone.now() - timedelta(hours=1))
    revoked, _ = ApiKey.issue(tenant)
    ApiKey.objects.filter(pk=revoked.pk).update(revoked_at=timezone.now())
    for state, key in {"live": live, "expired": expired, "revoked": revoked}.items():
        page = admin_client.get(KEYS, {"state": state}).content.decode()
        assert [k.prefix in page for k in (live, expired, revoked)] == [k is key for k in (live, expired, revoked)]


@pytest.mark.parametrize("query", ["acme", "", "nothing", "%", "\x00"])
@pytest.mark.parametrize("model", ["tenant", "apikey", "membership"])
def test_every_list_can_be_searched(admin_client: Client, tenant: Tenant, model: str, query: str) -> None:
    ApiKey.issue(tenant)
    Membership.objects.create(user=User.objects.create_user("alice"), tenant=tenant)
    assert admin_client.get(f"/admin/tenants/{model}/", {"q": query}).status_code == 200


def test_a_tenant_is_made_and_changed(admin_client: Client) -> None:
    form = {"name": "acme", "weight": "2", "max_running": "", "max_queued": "9", "submit_rate": ""}
    admin_client.post("/admin/tenants/tenant/add/", form)
    tenant = Tenant.objects.get()
    assert (tenant.weight, tenant.max_running, tenant.max_queued) == (2, None, 9)
    page = admin_client.post(f"/admin/tenants/tenant/{tenant.pk}/change/", {**form, "name": "a\tb"}).content.decode()
    assert "printable" in page


def test_a_tenant_of_weight_zero_is_refused_in_words(admin_client: Client) -> None:
    form = {"name": "acme", "weight": "0", "max_running": "", "max_queued": "", "submit_rate": ""}
    response = admin_client.post("/admin/tenants/tenant/add/", form)
    assert response.status_code == 200
    assert not Tenant.objects.exists()


@pytest.mark.parametrize("limit", ["weight", "max_running", "max_queued", "submit_rate"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "99999999999"])
def test_a_limit_that_is_no_count_is_refused_in_words(admin_client: Client, limit: str, value: str) -> None:
    form = {"name": "acme", "weight": "1", "max_running": "", "max_queued": "", "submit_rate": "", limit: value}
    page = admin_client.post("/admin/tenants/tenant/add/", form)
    assert page.status_code == 200
    assert "errorlist" in page.content.decode()
    assert not Tenant.objects.exists()


def test_tenants_are_paused_and_resumed_by_actions(admin_client: Client, tenant: Tenant) -> None:
    other = Tenant.objects.create(name="other")
    for action, paused in (("pause", True), ("resume", False)):
        form = {"action": action, "_selected_action": [str(tenant.pk)]}
        page = admin_client.post("/admin/tenants/tenant/", form, follow=True).content.decode()
        assert f"1 {action}d" in page
        tenant.refresh_from_db()
        other.refresh_from_db()
        assert (tenant.paused, other.paused) == (paused, False)
    assert "resume" in admin_client.get("/admin/tenants/tenant/", {"paused__exact": "1"}).content.decode()


def save_tenant(admin_client: Client, tenant: Tenant, **changes: object) -> str:
    """The page that follows, as text."""
    form = {"name": tenant.name, "weight": 1, **changes}
    page = f"/admin/tenants/tenant/{tenant.pk}/change/"
    saved = admin_client.post(page, form, follow=True).content.decode()
    tenant.refresh_from_db()
    return saved + admin_client.get(page).content.decode()


def test_a_proxy_goes_in_and_never_comes_out(admin_client: Client, tenant: Tenant) -> None:
    shown = save_tenant(admin_client, tenant, new_proxy="http://someone:hunter2@proxy.example", respect_robots="on")
    assert unseal_proxy(tenant.proxy) == Proxy("http", "proxy.example", 80, "someone", "hunter2")
    assert tenant.respect_robots
    sealed = tenant.proxy
    shown += save_tenant(admin_client, tenant)
    assert tenant.proxy == sealed
    shown += admin_client.get("/admin/tenants/tenant/").content.decode()
    shown += admin_client.get(f"/admin/tenants/tenant/{tenant.pk}/history/").content.decode()
    for secret in ("hunter2", "someone", "proxy.example", sealed):
        assert secret not in shown
    save_tenant(admin_client, tenant, remove_proxy="on")
    assert tenant.proxy == ""


def test_a_proxy_that_cannot_be_used_is_told_in_words_and_not_repeated(admin_client: Client, tenant: Tenant) -> None:
    shown = save_tenant(admin_client, tenant, new_proxy="http://someone:hunter2@10.0.0.1")
    assert "not one that this service may connect to" in shown
    assert "hunter2" not in shown
    assert tenant.proxy == ""

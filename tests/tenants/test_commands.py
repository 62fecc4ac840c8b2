"""The commands as scripts use them: one JSON object on stdout, and the exit code."""

from __future__ import annotations

import io

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError

from core.proxies import Proxy, unseal_proxy
from tenants.models import ApiKey, Membership, Tenant
from tests.commands import assert_refused, manage

pytestmark = pytest.mark.django_db(transaction=True)  # a command closes its connections


def test_a_tenant_is_made_with_a_key_that_works() -> None:
    made = manage(
        "create_tenant",
        "acme",
        "--weight",
        "2",
        "--max-running",
        "5",
        "--max-queued",
        "6",
        "--submit-rate",
        "7",
        "--json",
    )
    assert made.code == 0
    assert made.json.keys() == {"tenant", "id", "api_key"}
    tenant = Tenant.objects.get(pk=made.json["id"])
    assert (tenant.name, tenant.weight) == ("acme", 2)
    assert (tenant.max_running, tenant.max_queued, tenant.submit_rate) == (5, 6, 7)
    key = ApiKey.find(made.json["api_key"])
    assert key is not None
    assert key.tenant == tenant


def test_a_person_reads_lines() -> None:
    made = manage("create_tenant", "acme")
    assert made.out.splitlines()[0].split() == ["tenant", "acme"]


def test_a_name_is_taken_once(tenant: Tenant) -> None:
    assert_refused(manage("create_tenant", tenant.name, "--json"), "already")
    assert Tenant.objects.count() == 1


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\tb", "a\x00b", "x" * 101, "\u200b"])
def test_a_name_that_nobody_could_type_is_refused(name: str) -> None:
    assert_refused(manage("create_tenant", name, "--json"), "name")


@pytest.mark.parametrize("name", ["a", "x" * 100, "\u00c4rzte & Co.", "-1"])
def test_a_printable_name_is_taken(name: str) -> None:
    assert manage("create_tenant", "--json", "--", name).json["tenant"] == name


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "x", "2147483648", "\u0663"])
def test_a_limit_that_is_no_count_is_refused(value: str) -> None:
    assert_refused(manage("create_tenant", "acme", f"--weight={value}"), "whole number")


def test_limits_are_set_and_lifted(tenant: Tenant) -> None:
    manage("set_tenant", "acme", "--max-running", "5", "--max-queued", "6")
    changed = manage("set_tenant", "acme", "--weight", "3", "--no-limit", "max-queued", "--json")
    assert changed.json == {
        "tenant": "acme", "weight": 3, "max_running": 5, "max_queued": None, "submit_rate": None, "paused": False,
        "respect_robots": False, "has_proxy": False,
    }  # fmt: skip


def test_robots_and_a_proxy_are_set_and_taken_back(tenant: Tenant) -> None:
    changed = manage("set_tenant", "acme", "--respect-robots", "--proxy", "http://user:hunter2@proxy.example", "--json")
    assert (changed.json["respect_robots"], changed.json["has_proxy"]) == (True, True)
    assert "hunter2" not in changed.out + changed.err
    tenant.refresh_from_db()
    assert unseal_proxy(tenant.proxy) == Proxy("http", "proxy.example", 80, "user", "hunter2")
    assert manage("set_tenant", "acme", "--weight", "2", "--json").json["has_proxy"] is True
    changed = manage("set_tenant", "acme", "--no-respect-robots", "--proxy", "none", "--json")
    assert (changed.json["respect_robots"], changed.json["has_proxy"]) == (False, False)


def test_a_new_tenant_may_have_both_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("socks5://user:hunter2@proxy.example:443\n"))
    manage("create_tenant", "acme", "--respect-robots", "--proxy", "-")
    tenant = Tenant.objects.get(name="acme")
    assert tenant.respect_robots
    assert unseal_proxy(tenant.proxy) == Proxy("socks5", "proxy.example", 443, "user", "hunter2")


@pytest.mark.parametrize("url", ["ftp://u:hunter2@a.example", "http://u:hunter2@10.0.0.1", "http://u:hunter2@a/b", ""])
def test_a_proxy_that_cannot_be_used_is_refused_without_being_repeated(tenant: Tenant, url: str) -> None:
    refused = manage("set_tenant", "acme", f"--proxy={url}")
    assert_refused(refused, "--proxy")
    assert "hunter2" not in refused.err


def test_a_tenant_is_paused_and_resumed_and_its_limits_stay(tenant: Tenant) -> None:
    manage("set_tenant", "acme", "--max-running", "5")
    for option, paused in (("--pause", True), ("--pause", True), ("--resume", False)):
        changed = manage("set_tenant", "acme", option, "--json").json
        assert (changed["paused"], changed["max_running"]) == (paused, 5)
        assert Tenant.objects.get().paused is paused


def test_what_is_not_given_leaves_a_pause_as_it_is(tenant: Tenant) -> None:
    manage("set_tenant", "acme", "--pause")
    assert manage("set_tenant", "acme", "--weight", "2", "--json").json["paused"] is True


def test_a_tenant_is_not_paused_and_resumed_at_once(tenant: Tenant) -> None:
    assert_refused(manage("set_tenant", "acme", "--pause", "--resume"), "not allowed with")


@pytest.mark.parametrize("option", ["--max-running", "--max-queued", "--submit-rate"])
def test_a_limit_of_zero_is_refused_with_what_to_do_instead(tenant: Tenant, option: str) -> None:
    assert_refused(manage("set_tenant", "acme", option, "0"), "--pause")


@pytest.mark.parametrize("limit", ["weight", "max_running", "max_queued", "submit_rate"])
def test_the_database_knows_no_limit_of_zero_either(tenant: Tenant, limit: str) -> None:
    with pytest.raises(IntegrityError):
        Tenant.objects.update(**{limit: 0})


def test_a_limit_cannot_be_given_and_lifted(tenant: Tenant) -> None:
    assert_refused(manage("set_tenant", "acme", "--max-queued", "6", "--no-limit", "max-queued"), "both")


def test_a_key_is_made_for_a_scope_and_a_time(tenant: Tenant) -> None:
    made = manage(
        "create_api_key", "acme", "--scope", "jobs:read", "--expires", "2999-01-31T12:00:00+01:00", "--json"
    ).json
    assert made["scopes"] == ["jobs:read"]
    assert made["expires_at"] == "2999-01-31T11:00:00.000000Z"
    assert made["api_key"].startswith(made["prefix"] + "_")


def test_a_key_has_all_scopes_unless_told(tenant: Tenant) -> None:
    assert manage("create_api_key", "acme", "--json").json["scopes"] == ["jobs:read", "jobs:write"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody"], "no tenant"),
        (["acme", "--scope", "jobs:all"], "Unknown scope"),
        (["acme", "--expires", "2020-01-01T00:00:00Z"], "ahead"),
        (["acme", "--expires", "2999-01-01T00:00:00"], "offset"),
        (["acme", "--expires", "soon"], "not a time"),
        (["acme", "--expires", "9999-12-31T23:59:59-23:59"], "not a time"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(tenant: Tenant, arguments: list[str], said: str) -> None:
    assert_refused(manage("create_api_key", *arguments, "--json"), said)
    assert ApiKey.objects.count() == 0


def test_a_key_is_revoked_once_and_for_good(tenant: Tenant) -> None:
    key, plain = ApiKey.issue(tenant)
    first = manage("revoke_api_key", key.prefix, "--json").json
    assert first["prefix"] == key.prefix
    assert ApiKey.find(plain) is None
    assert manage("revoke_api_key", key.prefix, "--json").json == first


def test_a_prefix_that_nobody_has_is_refused() -> None:
    assert_refused(manage("revoke_api_key", "sj_nothing", "--json"), "no API key")


def test_a_person_is_let_in_and_moved(tenant: Tenant) -> None:
    User.objects.create_user("alice")
    Tenant.objects.create(name="other")
    assert manage("create_membership", "alice", "other", "--json").json == {"username": "alice", "tenant": "other"}
    assert manage("create_membership", "alice", "acme", "--json").json["tenant"] == "acme"
    assert Membership.objects.get().tenant == tenant
    assert_refused(manage("create_membership", "bob", "acme"), "no user")
    assert_refused(manage("create_membership", "alice", "nowhere"), "no tenant")


@pytest.mark.parametrize(
    "command", ["create_tenant", "set_tenant", "create_api_key", "revoke_api_key", "create_membership"]
)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    helped = manage(command, "--help")
    assert helped.code == 0
    assert f"manage.py {command}" in helped.out.partition("example:")[2]


@pytest.mark.parametrize("command", ["create_tenant", "set_tenant", "create_api_key", "revoke_api_key"])
def test_missing_arguments_are_exit_code_2(command: str) -> None:
    assert manage(command).code == 2

"""Keys that a process has lately looked up: for how long, how many, and what is kept of them."""

from __future__ import annotations

import gc
import json

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from tenants import known_keys
from tenants.known_keys import KNOWN_SECONDS, KnownKeys
from tenants.models import ApiKey, Tenant

pytestmark = pytest.mark.django_db
JOBS = "/api/v1/jobs"


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(clock: Clock) -> KnownKeys:
    return KnownKeys(clock)


def test_a_key_is_known_for_some_seconds_without_a_query(
    keys: KnownKeys, clock: Clock, api_key: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    assert keys.recall(api_key) is None
    keys.look_up(api_key)
    with django_assert_num_queries(0):
        known = keys.recall(api_key)
        assert known is not None
        assert known.tenant.name == "acme"
        clock.now += KNOWN_SECONDS - 0.001
        assert keys.recall(api_key) is known, "being used keeps it no longer"
        clock.now += 0.001
        assert keys.recall(api_key) is None
    assert KNOWN_SECONDS < 5, "a revocation holds within five seconds"


def test_changes_of_the_tenant_are_seen_at_the_next_look(keys: KnownKeys, api_key: str, tenant: Tenant) -> None:
    keys.look_up(api_key)
    Tenant.objects.filter(pk=tenant.pk).update(submit_rate=7)
    seen = keys.look_up(api_key)
    assert seen is not None
    assert seen.tenant.submit_rate == 7
    assert keys.recall(api_key) is seen


def test_a_key_found_to_be_revoked_is_not_known_any_more(keys: KnownKeys, api_key: str) -> None:
    keys.look_up(api_key)
    ApiKey.objects.update(revoked_at=Now())
    assert keys.look_up(api_key) is None
    assert keys.recall(api_key) is None


def test_what_is_no_key_is_not_kept(keys: KnownKeys) -> None:
    assert keys.look_up("sj_aaaaaaaaaaaa_" + "a" * 32) is None
    assert keys.look_up("nonsense \ud800") is None
    assert len(keys._known) == 0


def test_the_keys_used_last_are_kept_and_no_more(
    keys: KnownKeys, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_keys, "MOST_KEYS", 2)
    first, second, third = (ApiKey.issue(tenant)[1] for _ in range(3))
    keys.look_up(first)
    keys.look_up(second)
    keys.recall(first)
    keys.look_up(third)
    assert [keys.recall(plain) is not None for plain in (first, second, third)] == [True, False, True]


def test_no_plain_text_is_kept(keys: KnownKeys, api_key: str) -> None:
    keys.look_up(api_key)
    secret = api_key.rpartition("_")[2]
    gc.collect()
    held = repr([(name, vars(key), vars(key.tenant)) for name, (_, key) in keys._known.items()])
    assert secret not in held


def test_writes_are_refused_at_once_and_the_process_learns_from_it(tenant: Tenant, api_key: str) -> None:
    client = Client(headers={"Authorization": f"Bearer {api_key}"})
    assert client.get(JOBS).status_code == 200
    ApiKey.objects.update(revoked_at=Now())
    assert client.get(JOBS).status_code == 200, "it may be known for some seconds"
    body = json.dumps({"url": "http://a.example/"})
    assert client.post(JOBS, body, content_type="application/json").status_code == 401
    assert client.get(JOBS).status_code == 401


def test_reading_again_and_again_notes_the_use_without_writing_each_time(api_key: str) -> None:
    client = Client(headers={"Authorization": f"Bearer {api_key}"})
    client.get(JOBS)
    noted = ApiKey.objects.get().last_used_at
    assert noted is not None
    with CaptureQueriesContext(connection) as queries:
        for _ in range(3):
            client.get(JOBS)
    assert [query["sql"] for query in queries if "tenants_apikey" in query["sql"]] == []
    assert ApiKey.objects.get().last_used_at == noted

"""Endpoints and deliveries over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings
from standardwebhooks import Webhook

from tenants.models import Scope, Tenant
from tests.factories import client_of, make_tenant, member_client
from tests.webhooks.deliveries import announced, ended_job, make_endpoint, running_engine, settled, wait_for
from tests.webhooks.receiver import Receiver, Reply
from webhooks import endpoints
from webhooks.models import Delivery, Endpoint

API = "/api/v1"
ENDPOINTS = f"{API}/webhook-endpoints"
DELIVERIES = f"{API}/deliveries"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def public_only(settings: Settings) -> None:
    settings.EGRESS_ALLOW = ()


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    with Receiver() as receiver:
        settings.EGRESS_ALLOW = (receiver.allowed,)
        yield receiver


def post(client: Client, path: str, document: Any = None) -> Any:
    return client.post(path, "" if document is None else document, content_type="application/json")


def patch(client: Client, path: str, document: Any) -> Any:
    return client.patch(path, document, content_type="application/json")


def register(client: Client, url: str = "https://example.com/hook") -> dict[str, Any]:
    answer = post(client, ENDPOINTS, {"url": url, "description": "ours"})
    assert answer.status_code == 201, answer.content
    document: dict[str, Any] = answer.json()
    return document


def test_an_endpoint_is_registered_read_changed_and_deleted(api: Client) -> None:
    made = register(api)
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    path = f"{ENDPOINTS}/{made['id']}"
    assert api.get(path).json() == made
    assert api.get(ENDPOINTS).json() == {"items": [made]}
    changed = patch(api, path, {"url": "https://example.org/", "enabled": False}).json()
    assert (changed["url"], changed["enabled"], changed["disabled_reason"]) == (
        "https://example.org/",
        False,
        endpoints.DISABLED_BY_TENANT,
    )
    assert changed["description"] == "ours"
    assert patch(api, path, {"enabled": True}).json()["disabled_reason"] is None
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404
    assert api.get(ENDPOINTS).json() == {"items": []}


def test_a_new_address_does_not_answer_for_the_failures_of_the_old_one(api: Client) -> None:
    path = f"{ENDPOINTS}/{register(api)['id']}"
    Endpoint.objects.update(failing_since=datetime.now(UTC) - timedelta(days=4))
    assert patch(api, path, {"url": "https://example.com/hook", "description": "theirs"}).json()["failing_since"]
    assert patch(api, path, {"url": "https://example.org/"}).json()["failing_since"] is None


def test_the_secret_is_kept_sealed_and_never_shown_again(api: Client) -> None:
    answer = post(api, ENDPOINTS, {"url": "https://example.com/hook"})
    secret = answer.json()["secret"]
    assert answer["Cache-Control"] == "no-store"
    row = Endpoint.objects.get()
    assert secret not in row.secret
    for path in (ENDPOINTS, f"{ENDPOINTS}/{row.id}"):
        assert secret not in api.get(path).content.decode()


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/",
        "http://127.0.0.1/",
        "http://localhost/",
        "http://[::1]/",
        "http://169.254.169.254/latest",
        "http://0x7f.1/",
        "https://example.com:22/",
        "ftp://example.com/",
        "https://user:secret@example.com/",
        "nowhere",
        "",
        7,
    ],
)
def test_an_address_that_cannot_be_called_is_refused_when_it_is_saved(api: Client, url: Any) -> None:
    answer = post(api, ENDPOINTS, {"url": url})
    assert answer.status_code == 422
    assert [problem["pointer"] for problem in answer.json()["errors"]] == ["/url"]
    kept = register(api)
    assert patch(api, f"{ENDPOINTS}/{kept['id']}", {"url": url}).status_code == 422


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, "/url"),
        ([], ""),
        ({"url": "https://example.com/", "x": 1}, "/x"),
        ({"url": "https://example.com/", "description": "a" * 201}, "/description"),
        ({"url": "https://example.com/", "description": "a\u0000"}, "/description"),
        ({"url": "https://example.com/", "enabled": True}, "/enabled"),
    ],
)
def test_what_is_wrong_with_an_endpoint_is_named(api: Client, document: Any, pointer: str) -> None:
    answer = post(api, ENDPOINTS, document)
    assert answer.status_code in (400, 422)
    if answer.status_code == 422:
        assert [problem["pointer"] for problem in answer.json()["errors"]] == [pointer]


def test_a_tenant_may_have_so_many_endpoints_and_no_more(api: Client, tenant: Tenant) -> None:
    for _ in range(endpoints.MAX_ENDPOINTS):
        make_endpoint(tenant)
    answer = post(api, ENDPOINTS, {"url": "https://example.com/"})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_endpoints")
    assert Endpoint.objects.count() == endpoints.MAX_ENDPOINTS


def test_another_tenants_endpoints_and_deliveries_are_not_there(api: Client) -> None:
    other = make_tenant()
    endpoint, _ = make_endpoint(other)
    (delivery,) = announced(ended_job(other))
    one, sent = f"{ENDPOINTS}/{endpoint.id}", f"{DELIVERIES}/{delivery.id}"
    answers = [
        api.get(one),
        patch(api, one, {"enabled": False}),
        api.delete(one),
        post(api, f"{one}/rotate-secret"),
        post(api, f"{one}/test"),
        post(api, f"{one}/replay", {"since": "2026-01-01T00:00:00Z"}),
        api.get(sent),
        post(api, f"{sent}/replay"),
    ]
    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert api.get(DELIVERIES).json()["items"] == []
    assert api.get(DELIVERIES, {"endpoint": str(endpoint.id)}).json()["items"] == []
    assert Endpoint.objects.get(pk=endpoint.pk).disabled_at is None


def test_reading_needs_one_scope_and_changing_the_other(tenant: Tenant) -> None:
    reader, writer = client_of(tenant, scopes=[Scope.JOBS_READ]), client_of(tenant, scopes=[Scope.JOBS_WRITE])
    assert reader.get(ENDPOINTS).status_code == 200
    assert post(reader, ENDPOINTS, {"url": "https://example.com/"}).status_code == 403
    assert post(writer, ENDPOINTS, {"url": "https://example.com/"}).status_code == 201
    assert writer.get(DELIVERIES).status_code == 403


def test_a_rotation_shows_the_new_secret_and_says_how_long_the_old_one_is_good(api: Client) -> None:
    made = register(api)
    path = f"{ENDPOINTS}/{made['id']}/rotate-secret"
    rotated = post(api, path).json()
    assert rotated["secret"] != made["secret"]
    until = datetime.fromisoformat(rotated["previous_secret_expires_at"])
    assert timedelta(hours=23) < until - datetime.now(UTC) <= timedelta(hours=24)
    assert post(api, path, {"overlap_seconds": 0}).json()["previous_secret_expires_at"] is None
    for wrong in (-1, 604801, "5", True):
        assert post(api, path, {"overlap_seconds": wrong}).status_code == 422


def test_the_secret_of_callbacks_is_shown_when_it_is_rotated(api: Client) -> None:
    assert "secret" not in api.get(f"{API}/callback-secret").json()
    first = post(api, f"{API}/callback-secret/rotate").json()["secret"]
    second = post(api, f"{API}/callback-secret/rotate", {"overlap_seconds": 60}).json()
    assert first.startswith("whsec_")
    assert second["secret"] != first
    assert second["previous_secret_expires_at"] is not None


def test_deliveries_are_listed_newest_first_by_endpoint_and_status(api: Client, tenant: Tenant) -> None:
    make_endpoint(tenant)
    second, _ = make_endpoint(tenant)
    made = [one for _ in range(3) for one in announced(ended_job(tenant, callback_url="https://example.com/cb"))]
    Delivery.objects.filter(pk=made[0].pk).update(status="failed")
    assert [item["id"] for item in api.get(DELIVERIES).json()["items"]] == sorted(str(one.id) for one in made)[::-1]
    of_second = api.get(DELIVERIES, {"endpoint": str(second.id)}).json()["items"]
    assert {item["endpoint"] for item in of_second} == {str(second.id)}
    assert len(of_second) == 3
    failed = api.get(DELIVERIES, {"status": "failed"}).json()["items"]
    assert [item["id"] for item in failed] == [str(made[0].id)]
    for query in ({"status": "x"}, {"endpoint": "x"}, {"limit": "0"}, {"nope": "1"}, {"cursor": "x"}):
        assert api.get(DELIVERIES, query).status_code == 400


def test_the_pages_of_a_list_hold_every_delivery_once(api: Client, tenant: Tenant) -> None:
    make_endpoint(tenant)
    made = {str(one.id) for _ in range(7) for one in announced(ended_job(tenant))}
    seen: list[str] = []
    cursor = None
    while True:
        page = api.get(DELIVERIES, {"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert (len(seen), set(seen)) == (7, made)


def test_listing_costs_the_same_number_of_queries_however_many_there_are(
    api: Client, tenant: Tenant, django_assert_max_num_queries: Any
) -> None:
    make_endpoint(tenant)
    for _ in range(10):
        announced(ended_job(tenant))
    with django_assert_max_num_queries(3):
        assert len(api.get(DELIVERIES).json()["items"]) == 10


@pytest.mark.django_db(transaction=True)
def test_a_test_is_sent_at_once_and_its_outcome_told(api: Client, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(500, body=b"not yet")
    made = register(api, receiver.url)
    patch(api, f"{ENDPOINTS}/{made['id']}", {"enabled": False})
    with running_engine(receiver.allowed):
        answer = post(api, f"{ENDPOINTS}/{made['id']}/test")
    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert (told["type"], told["status"], told["last_status_code"]) == ("webhook.test", "failed", 500)
    assert [one["answer"] for one in told["try_log"]] == ["not yet"]
    (got,) = receiver.received
    assert Webhook(made["secret"]).verify(got.body, dict(got.headers))["data"] == {"endpoint": made["id"]}
    assert api.get(f"{ENDPOINTS}/{made['id']}").json()["failing_since"] is None


@pytest.mark.django_db(transaction=True)
def test_a_test_that_takes_long_is_answered_before_its_outcome_is_known(api: Client, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(seconds=10)
    made = register(api, receiver.url)
    with running_engine(receiver.allowed, timeout_seconds=20.0):
        answer = post(api, f"{ENDPOINTS}/{made['id']}/test")
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")


@pytest.mark.django_db(transaction=True)
def test_a_replay_sends_the_same_id_and_bytes_again(api: Client, tenant: Tenant, receiver: Receiver) -> None:
    make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed):
        settled(delivery)
        answer = post(api, f"{DELIVERIES}/{delivery.id}/replay")
        assert answer.status_code == 202
        settled(delivery, tries=2)
    first, second = receiver.received
    assert (first.webhook_id, first.body) == (second.webhook_id, second.body)
    told = api.get(f"{DELIVERIES}/{delivery.id}").json()
    assert [one["number"] for one in told["try_log"]] == [1, 2]
    assert told["body"] == first.body.decode()


@pytest.mark.django_db(transaction=True)
def test_a_time_range_is_replayed_with_what_failed_in_it(api: Client, tenant: Tenant, receiver: Receiver) -> None:
    endpoint, _ = make_endpoint(tenant, receiver.url)
    made = [one for _ in range(4) for one in announced(ended_job(tenant))]
    Delivery.objects.update(status="failed", next_try_at=None)
    Delivery.objects.filter(pk=made[3].pk).update(status="delivered")
    path = f"{ENDPOINTS}/{endpoint.id}/replay"
    since = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    assert post(api, path, {"since": "0001-01-01T00:00:00Z", "until": since}).json()["replayed"] == 0
    assert post(api, path, {"since": since}).json() == {"replayed": 3, "more": False}
    with running_engine(receiver.allowed):
        wait_for(lambda: len(set(receiver.ids())) == 3, "three are sent anew")
    assert set(receiver.ids()) == {str(one.id) for one in made[:3]}
    assert post(api, path, {}).status_code == 422
    assert post(api, path, {"since": since, "status": "pending"}).status_code == 422


def test_nothing_is_replayed_to_a_disabled_endpoint(api: Client, tenant: Tenant) -> None:
    endpoint, _ = make_endpoint(tenant)
    (delivery,) = announced(ended_job(tenant))
    endpoints.change(endpoint, {"enabled": False})
    for path, document in (
        (f"{DELIVERIES}/{delivery.id}/replay", None),
        (f"{ENDPOINTS}/{endpoint.id}/replay", {"since": "2026-01-01T00:00:00Z"}),
    ):
        answer = post(api, path, document)
        assert (answer.status_code, answer.json()["code"]) == (409, "endpoint_disabled")


def test_what_is_not_there_is_404(api: Client) -> None:
    for path in (f"{ENDPOINTS}/{uuid.uuid4()}", f"{DELIVERIES}/{uuid.uuid4()}"):
        assert api.get(path).json()["code"] == "not_found"


def test_every_answer_tells_the_rate_limit(api: Client) -> None:
    assert "RateLimit-Policy" in api.get(ENDPOINTS)


def test_a_person_sees_pages_with_forms(tenant: Tenant) -> None:
    person = member_client(tenant)
    endpoint, _ = make_endpoint(tenant)
    (delivery,) = announced(ended_job(tenant))
    for path in (ENDPOINTS, f"{ENDPOINTS}/{endpoint.id}", DELIVERIES, f"{DELIVERIES}/{delivery.id}"):
        page = person.get(path)
        assert page.status_code == 200
        assert page["Content-Type"].startswith("text/html")
    assert 'name="_content"' in person.get(ENDPOINTS).content.decode()

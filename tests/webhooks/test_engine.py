"""The delivery engine, on a real database and real receivers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone
from standardwebhooks import Webhook

from jobs.states import State
from jobs.timestamps import rfc3339_or_none
from tenants.models import Tenant
from tests.factories import make_tenant
from tests.webhooks.deliveries import announced, ended_job, make_endpoint, running_engine, settled, wait_for
from tests.webhooks.receiver import Receiver, Reply
from webhooks.models import CallbackSecret, Delivery, DeliveryTry, Endpoint
from webhooks.secret_keeping import rotate
from webhooks.signing import live_secrets, seal_secret

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def seconds_until(moment: datetime | None) -> float:
    assert moment is not None
    return (moment - timezone.now()).total_seconds()


def test_an_ended_job_is_told_in_a_body_that_the_official_library_verifies(tenant: Tenant, receiver: Receiver) -> None:
    endpoint, secret = make_endpoint(tenant, receiver.url)
    job = ended_job(tenant, State.FAILED, tags=["a", "ü"], attempts=3)
    (delivery,) = announced(job)
    with running_engine(receiver.allowed):
        settled(delivery)
    (got,) = receiver.received
    document = Webhook(secret).verify(got.body, dict(got.headers))
    path = f"/api/v1/jobs/{job.id}"
    assert document == {
        "type": "job.finished",
        "timestamp": rfc3339_or_none(job.finished_at),
        "data": {
            "id": str(job.id),
            "status": "failed",
            "finished_at": rfc3339_or_none(job.finished_at),
            "tags": ["a", "ü"],
            "attempts": 3,
            "last_error": {
                "code": "http_404",
                "detail": "Gone.",
                "http_status": 404,
                "at": "2026-01-01T00:00:00.000000Z",
            },
            "links": {"self": path, "result": f"{path}/result", "attempts": f"{path}/attempts"},
        },
    }
    assert got.webhook_id == str(delivery.id)
    assert got.headers["content-type"] == "application/json"
    assert (delivery.status, delivery.tries, delivery.next_try_at) == ("delivered", 1, None)
    assert bytes(delivery.body) == got.body
    endpoint.refresh_from_db()
    assert endpoint.failing_since is None


def test_both_secrets_sign_while_a_rotation_is_under_way(tenant: Tenant, receiver: Receiver) -> None:
    endpoint, old = make_endpoint(tenant, receiver.url)
    _, new = rotate(Endpoint.objects.filter(pk=endpoint.pk), overlap=timedelta(hours=1))
    (delivery,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed):
        settled(delivery)
    (got,) = receiver.received
    assert len(got.headers["webhook-signature"].split(" ")) == 2
    for secret in (old, new):
        assert Webhook(secret).verify(got.body, dict(got.headers))


def test_a_callback_is_signed_with_the_tenants_own_secret(tenant: Tenant, receiver: Receiver) -> None:
    (delivery,) = announced(ended_job(tenant, callback_url=receiver.url + "?job=7"))
    with running_engine(receiver.allowed):
        settled(delivery)
    (got,) = receiver.received
    kept = CallbackSecret.objects.get(pk=tenant.pk)
    (secret,) = live_secrets(kept.secret, "", None, now=timezone.now())
    assert Webhook(secret).verify(got.body, dict(got.headers))
    assert got.path == "/hook?job=7"


def test_a_try_that_failed_is_repeated_by_the_schedule_with_the_same_id_and_bytes(
    tenant: Tenant, receiver: Receiver
) -> None:
    receiver.reply = lambda got: Reply(503 if len(receiver.received) < 2 else 200, body=b"thanks")
    endpoint, secret = make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed):
        settled(delivery)
        assert 3 < seconds_until(delivery.next_try_at) < 6
        endpoint.refresh_from_db()
        assert endpoint.failing_since is not None
        assert endpoint.disabled_reason == "", "one failure is no reason yet"
        settled(delivery, tries=2)
    first, second = receiver.received
    assert (first.webhook_id, first.body) == (second.webhook_id, second.body)
    assert 4 < second.at - first.at < 9
    assert Webhook(secret).verify(second.body, dict(second.headers))
    rows = DeliveryTry.objects.order_by("number").values_list("number", "status_code", "error_code", "answer")
    assert list(rows) == [(1, 503, "http_503", "thanks"), (2, 200, "", "thanks")]
    endpoint.refresh_from_db()
    assert endpoint.failing_since is None


def test_retry_after_is_obeyed(tenant: Tenant, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(429, headers={"Retry-After": "100"})
    make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed):
        settled(delivery)
    assert 90 < seconds_until(delivery.next_try_at) <= 100


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(tenant: Tenant, receiver: Receiver, status: int) -> None:
    receiver.reply = lambda got: Reply(status, headers={"Location": receiver.url + "/elsewhere"})
    make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed):
        settled(delivery)
    assert (delivery.status, delivery.last_error_code) == ("pending", f"http_{status}")
    assert [got.path for got in receiver.received] == ["/hook"]


def test_410_ends_the_delivery_and_disables_the_endpoint(tenant: Tenant, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(410)
    endpoint, _ = make_endpoint(tenant, receiver.url)
    (first,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed) as engine:
        settled(first)
        endpoint.refresh_from_db()
        assert first.status == "failed"
        assert endpoint.disabled_at is not None
        assert "410" in endpoint.disabled_reason
        assert announced(ended_job(tenant)) == []
        engine.wake()
    assert len(receiver.received) == 1


def test_what_is_due_at_a_disabled_endpoint_ends_without_a_request(tenant: Tenant, receiver: Receiver) -> None:
    endpoint, _ = make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    Endpoint.objects.filter(pk=endpoint.pk).update(disabled_at=Now())
    with running_engine(receiver.allowed):
        wait_for(lambda: Delivery.objects.filter(pk=delivery.pk, status="failed").exists(), "it ended")
    delivery.refresh_from_db()
    assert (delivery.tries, delivery.last_error_code) == (0, "endpoint_disabled")
    assert receiver.received == []


def test_an_endpoint_that_failed_for_five_days_is_disabled_and_says_why(tenant: Tenant, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(500)
    endpoint, _ = make_endpoint(tenant, receiver.url, failing_since=timezone.now() - timedelta(days=4, hours=23))
    (first,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed):
        settled(first)
        assert not Endpoint.objects.exclude(disabled_at=None).exists()
        Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=timezone.now() - timedelta(days=5, seconds=1))
        (second,) = announced(ended_job(tenant))
        settled(second)
    endpoint.refresh_from_db()
    assert endpoint.disabled_at is not None
    assert "Every try has failed since" in endpoint.disabled_reason
    assert "status 500" in endpoint.disabled_reason


def test_tries_that_are_used_up_end_the_delivery(tenant: Tenant, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(500)
    make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    Delivery.objects.filter(pk=delivery.pk).update(round_tries=9, tries=9)
    with running_engine(receiver.allowed):
        settled(delivery, tries=10)
    assert (delivery.status, delivery.next_try_at) == ("failed", None)


@pytest.mark.parametrize(
    ("kept", "code"),
    [("not sealed here", "secret_unreadable"), (seal_secret("whsec_"), "internal_error")],
    ids=["sealed elsewhere", "empty"],
)
def test_a_delivery_that_cannot_be_signed_uses_up_a_try_and_stops_nobody(
    tenant: Tenant, receiver: Receiver, kept: str, code: str
) -> None:
    broken, _ = make_endpoint(tenant, receiver.url)
    Endpoint.objects.filter(pk=broken.pk).update(secret=kept)
    make_endpoint(tenant, receiver.url)
    first, second = announced(ended_job(tenant))
    with running_engine(receiver.allowed):
        settled(first)
        settled(second)
    assert (first.status, first.last_error_code) == ("pending", code)
    assert second.status == "delivered"
    assert receiver.ids() == [str(second.id)]


def test_a_callback_that_is_no_address_any_more_fails_when_it_is_tried(tenant: Tenant) -> None:
    (delivery,) = announced(ended_job(tenant, callback_url="nowhere"))
    with running_engine():
        settled(delivery)
    assert (delivery.status, delivery.last_error_code) == ("pending", "invalid_request")


def test_a_receiver_that_hangs_is_given_up_and_tried_again(tenant: Tenant, receiver: Receiver) -> None:
    receiver.reply = lambda got: Reply(seconds=30)
    make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed, timeout_seconds=0.3):
        settled(delivery)
    assert (delivery.status, delivery.last_error_code) == ("pending", "deadline_exceeded")


def test_one_that_hangs_slows_no_other(tenant: Tenant, receiver: Receiver) -> None:
    with Receiver(lambda got: Reply(seconds=30)) as hanging:
        make_endpoint(tenant, hanging.url)
        make_endpoint(tenant, receiver.url)
        jobs = [ended_job(tenant) for _ in range(50)]
        started = time.monotonic()
        with running_engine(receiver.allowed, hanging.allowed, timeout_seconds=20.0) as engine:
            for job in jobs:
                announced(job)
                engine.wake()
            wait_for(lambda: len(receiver.received) == 50, "the quick one has all")
            took = time.monotonic() - started
        assert took < 10
        assert 0 < len(hanging.received) < 50


def test_many_that_hang_slow_no_other(receiver: Receiver) -> None:
    with Receiver(lambda got: Reply(seconds=30)) as hanging:
        noisy = make_tenant()
        for _ in range(40):
            make_endpoint(noisy, hanging.url)
        for _ in range(10):
            announced(ended_job(noisy))
        quiet = make_tenant()
        make_endpoint(quiet, receiver.url)
        with running_engine(receiver.allowed, hanging.allowed, timeout_seconds=20.0) as engine:
            wait_for(lambda: len(hanging.received) >= 40, "the hanging ones are being tried")
            announced(ended_job(quiet))
            engine.wake()
            wait_for(lambda: len(receiver.received) == 1, "the quiet tenant is told", seconds=5)
        assert len(hanging.received) <= 64


def test_a_stopped_engine_gives_back_what_was_under_way_and_another_repeats_it(
    tenant: Tenant, receiver: Receiver
) -> None:
    receiver.reply = lambda got: Reply(seconds=30 if len(receiver.received) < 2 else 0)
    make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    with running_engine(receiver.allowed, timeout_seconds=20.0):
        wait_for(lambda: len(receiver.received) == 1, "the first try is under way")
    with running_engine(receiver.allowed):
        settled(delivery)
    assert receiver.ids() == [str(delivery.id)] * 2
    assert (delivery.status, delivery.tries) == ("delivered", 1)


def test_a_name_that_rebinds_is_never_connected_to(tenant: Tenant, receiver: Receiver) -> None:
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers, ["127.0.0.1"])

    make_endpoint(tenant, f"http://rebinds.example:{receiver.port}/hook")
    with running_engine(ports=[str(receiver.port)], resolver=rebinding, timeout_seconds=0.5):
        (first,) = announced(ended_job(tenant))
        settled(first)
        (second,) = announced(ended_job(tenant))
        settled(second)
    assert second.last_error_code == "blocked_target"
    assert receiver.received == []


def test_a_private_address_is_never_connected_to(tenant: Tenant, receiver: Receiver) -> None:
    make_endpoint(tenant, receiver.url)
    (delivery,) = announced(ended_job(tenant))
    with running_engine():
        settled(delivery)
    assert (delivery.status, delivery.last_error_code) == ("pending", "blocked_target")
    assert receiver.received == []

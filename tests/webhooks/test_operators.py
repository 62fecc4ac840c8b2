"""What operators see and do: the command, the admin, the doctor and the metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest

from tenants.models import Tenant
from tests.commands import assert_refused, manage
from tests.docs.markdown import ROOT, section, table_rows
from tests.factories import make_tenant, staff_client
from tests.webhooks.deliveries import announced, ended_job, make_endpoint
from webhooks import endpoints, findings, vitals
from webhooks.metrics import GAUGES, WebhookCollector
from webhooks.models import Delivery, DeliveryTry, Endpoint
from webhooks.vitals import WebhookVitals

WELL = WebhookVitals(due=0, oldest_due_age=0.0, failing=0, disabled=0, last_try_age=None)

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
def test_the_command_lists_who_fails_or_is_disabled_and_why(tenant: Tenant) -> None:
    make_endpoint(tenant)
    failing, _ = make_endpoint(tenant, failing_since=timezone.now() - timedelta(days=1))
    disabled, _ = make_endpoint(make_tenant("other"), disabled_at=timezone.now(), disabled_reason="It said 410.")
    ended = manage("webhooks", "--json")
    assert ended.code == 1
    assert [one["id"] for one in ended.json["endpoints"]] == [str(failing.id), str(disabled.id)]
    assert ended.json["endpoints"][1]["disabled_reason"] == "It said 410."
    assert [one["tenant"] for one in manage("webhooks", "--tenant", "other", "--json").json["endpoints"]] == ["other"]
    people = manage("webhooks").out
    assert "failing since" in people
    assert "It said 410." in people


@pytest.mark.django_db(transaction=True)
def test_the_command_ends_with_0_where_all_is_well(tenant: Tenant) -> None:
    make_endpoint(tenant)
    assert (manage("webhooks").code, manage("webhooks", "--json").json) == (0, {"endpoints": []})


@pytest.mark.django_db(transaction=True)
def test_the_command_replays_what_failed_since_then(tenant: Tenant) -> None:
    endpoint, _ = make_endpoint(tenant)
    made = [one for _ in range(3) for one in announced(ended_job(tenant))]
    Delivery.objects.filter(pk__in=[one.pk for one in made[:2]]).update(status="failed", next_try_at=None)
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    ended = manage("webhooks", "--replay", str(endpoint.id), "--since", since, "--json")
    assert (ended.code, ended.json) == (0, {"replayed": 2})
    assert Delivery.objects.filter(status="pending").count() == 3


@pytest.mark.django_db(transaction=True)
def test_the_command_says_what_it_cannot_do(tenant: Tenant) -> None:
    endpoint, _ = make_endpoint(tenant)
    since = "2026-01-01T00:00:00Z"
    assert_refused(manage("webhooks", "--replay", str(endpoint.id)), "--since")
    assert_refused(manage("webhooks", "--since", since), "--replay")
    assert_refused(manage("webhooks", "--tenant", "nobody"), "no tenant named 'nobody'")
    assert_refused(manage("webhooks", "--replay", "x", "--since", since), "not an endpoint's id")
    assert_refused(manage("webhooks", "--replay", str(tenant.id), "--since", since), "There is no endpoint")
    endpoints.change(endpoint, {"enabled": False})
    assert_refused(manage("webhooks", "--replay", str(endpoint.id), "--since", since), "disabled")


def test_operators_enable_disable_and_replay_in_the_admin(tenant: Tenant) -> None:
    operator = staff_client()
    endpoint, secret = make_endpoint(tenant)
    (delivery,) = announced(ended_job(tenant))
    Delivery.objects.update(status="failed", next_try_at=None)

    def act(model: str, action: str, key: object) -> None:
        answer = operator.post(f"/admin/webhooks/{model}/", {"action": action, "_selected_action": [str(key)]})
        assert answer.status_code == 302

    act("endpoint", "disable", endpoint.pk)
    endpoint.refresh_from_db()
    assert endpoint.disabled_reason == endpoints.DISABLED_BY_OPERATOR
    act("delivery", "replay", delivery.pk)
    assert Delivery.objects.get().status == "failed"
    act("endpoint", "enable", endpoint.pk)
    act("delivery", "replay", delivery.pk)
    assert Delivery.objects.get().status == "pending"
    for page in (f"endpoint/{endpoint.pk}/change/", "endpoint/", f"delivery/{delivery.pk}/change/", "delivery/"):
        shown = operator.get(f"/admin/webhooks/{page}")
        assert shown.status_code == 200
        assert endpoint.secret not in shown.content.decode()
        assert secret not in shown.content.decode()
    assert str(delivery.pk) in operator.get("/admin/webhooks/delivery/", {"q": str(delivery.job_id)}).content.decode()


def test_a_healthy_service_has_no_findings() -> None:
    assert list(findings.examine(WELL)) == []
    busy = WebhookVitals(due=900, oldest_due_age=5000.0, failing=3, disabled=0, last_try_age=10.0)
    assert list(findings.examine(busy)) == []


@pytest.mark.parametrize("last_try_age", [None, 61.0])
def test_deliveries_that_nobody_tries_are_found(last_try_age: float | None) -> None:
    stuck = WebhookVitals(due=7, oldest_due_age=3600.0, failing=0, disabled=0, last_try_age=last_try_age)
    (finding,) = findings.examine(stuck)
    assert "7 webhook deliveries are due" in finding.what
    assert "events role" in finding.do


def test_the_vitals_are_read_from_the_rows(tenant: Tenant) -> None:
    assert vitals.observe() == WELL
    make_endpoint(tenant, failing_since=timezone.now())
    gone, _ = make_endpoint(tenant)
    first, _ = announced(ended_job(tenant))
    Endpoint.objects.filter(pk=gone.pk).update(failing_since=timezone.now(), disabled_at=timezone.now())
    now = timezone.now()
    Delivery.objects.filter(pk=first.pk).update(next_try_at=now - timedelta(seconds=100))
    DeliveryTry.objects.create(delivery=first, number=1, at=now - timedelta(seconds=90), latency_ms=1)
    seen = vitals.observe()
    assert (seen.failing, seen.disabled) == (1, 1)
    assert seen.due >= 1
    assert seen.oldest_due_age > 90
    assert seen.last_try_age is not None
    assert seen.last_try_age > 80


@pytest.mark.django_db(transaction=True)
def test_the_doctor_tells_of_webhooks_as_well(tenant: Tenant) -> None:
    make_endpoint(tenant)
    announced(ended_job(tenant))
    Delivery.objects.update(next_try_at=timezone.now() - timedelta(hours=1))
    told = [finding["what"] for finding in manage("doctor", "--json").json["findings"]]
    assert any("webhook deliveries are due" in what for what in told)


def test_the_metrics_are_told_and_the_operators_page_names_each() -> None:
    registry = CollectorRegistry()
    registry.register(WebhookCollector(lambda: WELL))
    shown = generate_latest(registry).decode()
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    told = {row[0].strip("`") for row in table_rows(section(page, "Webhooks"))}
    assert told == {name for name, _, _ in GAUGES}
    assert all(f"\n{name} " in shown for name in told)

"""Hosts in the admin: policies are changed as by command, what a host told is shown, a block is lifted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from jobs import hosts
from jobs.models import HostPolicy, HostState
from tests.factories import staff_client

pytestmark = pytest.mark.django_db

BUSY = "busy.example:443"
POLICIES, STATES = "/admin/jobs/hostpolicy/", "/admin/jobs/hoststate/"


@pytest.fixture
def staff() -> Client:
    return staff_client()


def add(staff: Client, **fields: Any) -> Any:
    form = {"host": BUSY, "rate": "", "burst": "", "concurrency": "", "adaptive": "on", "note": ""} | fields
    return staff.post(f"{POLICIES}add/", form)


def errors_of(answer: Any) -> str:
    assert answer.status_code == 200
    return str(answer.context["adminform"].form.errors)


def test_a_policy_is_added_with_its_host_as_it_is_stored_and_who_did_it(staff: Client) -> None:
    assert add(staff, host="https://BUSY.example/path", rate="0.5", paused="on").status_code == 302
    policy = HostPolicy.objects.get()
    assert (policy.host, policy.rate, policy.burst, policy.paused) == (BUSY, 0.5, None, True)
    assert policy.changed_by.startswith("operator")


def test_a_policy_is_changed_and_its_host_stays(staff: Client) -> None:
    HostPolicy.objects.create(host=BUSY, rate=1.0, note="old")
    answer = staff.post(f"{POLICIES}{BUSY.replace(':', '_3A')}/change/", {"host": "other.example:443", "burst": "3"})
    assert answer.status_code == 302
    policy = HostPolicy.objects.get()
    assert (policy.host, policy.rate, policy.burst, policy.adaptive, policy.note) == (BUSY, None, 3, False, "")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": "busy.example"}, "Say which port"),
        ({"host": "not a host"}, "host"),
        ({"rate": "0"}, "pause to stop a host"),
        ({"rate": "nan"}, "number"),
        ({"burst": "0"}, "from 1"),
        ({"concurrency": "0"}, "from 1"),
    ],
)
def test_what_makes_no_sense_is_told_beside_its_field(staff: Client, fields: dict[str, str], said: str) -> None:
    assert said in errors_of(add(staff, **fields))
    assert not HostPolicy.objects.exists()


def test_block_and_pace_stand_beside_the_policy(staff: Client) -> None:
    HostPolicy.objects.create(host=BUSY)
    HostState.objects.create(
        host=BUSY, blocked_until=timezone.now() + timedelta(days=300), blocked_by="http_429", pace=0.25
    )
    text = staff.get(POLICIES).content.decode()
    assert "25%" in text
    assert str((timezone.now() + timedelta(days=300)).year) in text
    assert "25%" in staff.get(f"{POLICIES}{BUSY.replace(':', '_3A')}/change/").content.decode()


def test_what_a_hosts_robots_txt_asks_for_can_be_seen(staff: Client) -> None:
    hosts.record_crawl_delay("slow.example:443", 12.5)
    page = staff.get("/admin/jobs/crawldelay/").content.decode()
    assert "slow.example:443" in page
    assert "12.5" in page


def test_what_a_host_told_can_be_seen_and_not_written(staff: Client) -> None:
    HostState.objects.create(host=BUSY, blocked_until=timezone.now() + timedelta(hours=1), blocked_by="http_429")
    text = staff.get(STATES).content.decode()
    assert "http_429" in text
    assert staff.get(f"{STATES}add/").status_code == 403
    assert staff.post(f"{STATES}{BUSY.replace(':', '_3A')}/change/", {"pace": "1"}).status_code == 403


def lift(client: Client) -> Any:
    return client.post(STATES, {"action": "lift_blocks", "_selected_action": [BUSY]}, follow=True)


def test_a_block_is_lifted_by_who_may_change_policies_only(staff: Client) -> None:
    HostState.objects.create(host=BUSY, blocked_until=timezone.now() + timedelta(hours=1), blocked_by="http_429")
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_hoststate"))
    client = Client()
    client.force_login(viewer)
    lift(client)
    assert HostState.objects.get().blocked_until is not None
    assert "1 may be called again" in lift(staff).content.decode()
    assert HostState.objects.get().blocked_until is None

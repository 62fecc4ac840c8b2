"""`set_host`: what operators may say of a host, and what they see of it."""

from __future__ import annotations

import getpass
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from core.encoding import rfc3339
from jobs import hosts
from jobs.models import HostPolicy, HostState
from tests.commands import assert_refused, manage

pytestmark = pytest.mark.django_db(transaction=True)  # each command closes its connection

BUSY = "busy.example:443"


@pytest.fixture(autouse=True)
def defaults(settings: Any) -> None:
    settings.DEFAULT_HOST_RATE, settings.DEFAULT_HOST_BURST, settings.DEFAULT_HOST_CONCURRENCY = 5.0, 6, 4


def set_host(*arguments: str) -> dict[str, Any]:
    ended = manage("set_host", *arguments, "--json")
    assert ended.code == 0, ended.err
    return ended.json


def test_it_sets_what_is_given_and_leaves_the_rest_at_its_default() -> None:
    answer = set_host(BUSY, "--rate", "0.5", "--concurrency", "2", "--note", "they asked")
    expected = {"host": BUSY, "rate": 0.5, "burst": 6, "concurrency": 2, "paused": False, "blocked_until": None}
    assert answer | expected == answer
    policy = HostPolicy.objects.get(host=BUSY)
    assert (policy.rate, policy.burst, policy.concurrency, policy.note) == (0.5, None, 2, "they asked")
    assert policy.changed_by == getpass.getuser()
    assert set_host(BUSY, "--burst", "9") | {"rate": 0.5, "burst": 9} == set_host(BUSY)
    assert set_host(BUSY, "--rate", "default")["rate"] == 5.0


def test_what_its_robots_txt_asks_for_is_shown_and_an_own_rate_stands_above_it() -> None:
    hosts.record_crawl_delay(BUSY, 4.0)
    assert set_host(BUSY) | {"rate": 0.25, "burst": 1} == set_host(BUSY)
    assert set_host(BUSY, "--rate", "2") | {"rate": 2.0, "burst": 6} == set_host(BUSY)


def test_pause_and_resume() -> None:
    assert set_host(BUSY, "--pause")["paused"] is True
    assert set_host(BUSY, "--rate", "1")["paused"] is True
    assert set_host(BUSY, "--resume")["paused"] is False
    assert_refused(manage("set_host", BUSY, "--pause", "--resume"), "not allowed with")


def test_without_options_it_shows_and_writes_nothing() -> None:
    assert set_host(BUSY)["rate"] == 5.0
    assert not HostPolicy.objects.exists()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("busy.example:8443", ["busy.example:8443"]),
        ("BUSY.Example:443", [BUSY]),
        ("busy.example", [BUSY, "busy.example:80"]),
        ("busy.example.", [BUSY, "busy.example:80"]),
        ("https://busy.example/a?b=c", [BUSY]),
        ("http://busy.example:8080", ["busy.example:8080"]),
        ("bücher.example:80", ["xn--bcher-kva.example:80"]),
        ("[2001:DB8::1]:80", ["[2001:db8::1]:80"]),
        ("127.0.0.1:9000", ["127.0.0.1:9000"]),
    ],
)
def test_hosts_are_named_as_people_know_them(given: str, meant: list[str]) -> None:
    answer = set_host(given, "--rate", "2")
    assert answer["host"] == meant[0]
    assert answer["hosts"] == meant
    assert set(HostPolicy.objects.values_list("host", flat=True)) == set(meant)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["busy example"], "busy example"),
        ([""], "''"),
        (["busy.example:99999"], "busy.example:99999"),
        (["https://user:secret@busy.example/"], "user name"),
        (["ftp://busy.example/"], "http"),
        ([BUSY, "--rate", "0"], "pause to stop a host"),
        ([BUSY, "--rate", "nan"], "from 0.001"),
        ([BUSY, "--rate", "inf"], "from 0.001"),
        ([BUSY, "--rate", "-1"], "from 0.001"),
        ([BUSY, "--rate", "fast"], "'fast'"),
        ([BUSY, "--burst", "0"], "from 1"),
        ([BUSY, "--burst", "1.5"], "from 1"),
        ([BUSY, "--concurrency", "99999999999999"], "from 1"),
        ([BUSY, "--note", "x" * 2001], "2000"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    assert_refused(manage("set_host", *arguments, "--json"), said)
    assert not HostPolicy.objects.exists()


def test_a_block_is_shown_and_lifted() -> None:
    until = timezone.now() + timedelta(hours=1)
    HostState.objects.create(host=BUSY, blocked_until=until, blocked_by="http_429", pace=0.5)
    shown = set_host(BUSY)
    assert shown["blocked_until"] == rfc3339(until)
    assert shown["pace"] == 0.5
    assert set_host(BUSY, "--unblock")["blocked_until"] is None
    assert hosts.active_states()[BUSY].pace == 0.5


def test_switching_the_adaptive_pace_off_brings_the_full_rate_back() -> None:
    HostState.objects.create(host=BUSY, pace=0.5)
    assert set_host(BUSY, "--no-adaptive") | {"adaptive": False, "pace": 1.0} == set_host(BUSY)
    assert HostState.objects.get(host=BUSY).pace == 1.0
    assert set_host(BUSY, "--adaptive")["adaptive"] is True


def test_it_explains_itself_with_an_example() -> None:
    helped = manage("set_host", "--help")
    assert helped.code == 0
    assert "manage.py set_host" in helped.out.partition("example:")[2]
    assert manage("set_host").code == 2


def test_a_person_sees_one_line_for_each_value() -> None:
    ended = manage("set_host", BUSY, "--rate", "2")
    assert ended.code == 0
    assert "rate" in ended.out
    assert "2.0" in ended.out

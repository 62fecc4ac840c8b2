"""Whether the service says truthfully how it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from django.test import Client

from core.health import Probe, ask_all


def fail() -> None:
    raise ConnectionError("redis://user:password@host")


def fine() -> None:
    return None


def test_alive_needs_nobody(client: Client) -> None:
    """No database mark here: a query would fail the test."""
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.django_db(transaction=True)
def test_ready_names_every_part(client: Client) -> None:
    response = client.get("/readyz")
    assert response.status_code == 200
    checks = response.json()["checks"]
    assert {"database", "broker", "cache"} <= checks.keys()
    assert checks["database"]["status"] == "ok"
    assert checks["database"]["ms"] >= 0


@pytest.mark.django_db
def test_metrics_are_prometheus_text(client: Client) -> None:
    response = client.get("/metrics")
    assert response["Content-Type"].startswith("text/plain")
    assert b"python_info" in response.content


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["healthz", "readyz", "metrics"])
def test_they_stand_under_the_prefix_of_the_api_as_well(client: Client, name: str) -> None:
    plain, prefixed = client.get(f"/{name}"), client.get(f"/api/v1/{name}")
    assert (prefixed.status_code, prefixed["Content-Type"]) == (200, plain["Content-Type"])
    assert name == "metrics" or prefixed.content.endswith(b"}\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/", "/favicon.ico", "/api/v1/healthz"])
def test_they_are_read_only(client: Client, path: str) -> None:
    response = client.post(path)
    assert (response.status_code, response["Content-Type"]) == (405, "application/problem+json")


def test_the_root_leads_to_the_documentation(client: Client) -> None:
    assert client.get("/")["Location"] == "/api/v1/docs"


def test_the_admin_is_found_without_its_slash(client: Client) -> None:
    answer = client.get("/admin")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")


def test_the_picture_that_browsers_ask_for_is_no_failure(client: Client) -> None:
    answer = client.get("/favicon.ico")
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_part_that_fails_is_named_without_its_secrets() -> None:
    report = ask_all([Probe("cache", fail), Probe("database", fine, essential=True)])
    assert (report.usable, report.healthy) == (True, False)
    assert report.as_dict()["cache"]["error"] == "ConnectionError"
    assert "password" not in str(report.as_dict())


def test_without_an_essential_part_it_is_not_usable() -> None:
    assert not ask_all([Probe("cache", fine), Probe("database", fail, essential=True)]).usable


@pytest.fixture
def hang() -> Iterator[Callable[[], object]]:
    """A probe that answers only when the test is over."""
    over = threading.Event()
    yield over.wait
    over.set()


def test_parts_that_hang_cost_one_patience_together(hang: Callable[[], object]) -> None:
    probes = [Probe(name, hang) for name in "abc"] + [Probe("d", fine)]
    started = time.monotonic()
    report = ask_all(probes, patience=0.3)
    assert time.monotonic() - started < 2.0
    assert [report.findings[name].error for name in "abcd"] == ["Timeout", "Timeout", "Timeout", None]


def test_a_part_that_hangs_is_not_asked_again(hang: Callable[[], object]) -> None:
    probe = Probe("a", hang)
    ask_all([probe], patience=0.01)
    threads = threading.active_count()
    assert ask_all([probe], patience=0.01).findings["a"].error == "StillWaiting"
    assert threading.active_count() == threads

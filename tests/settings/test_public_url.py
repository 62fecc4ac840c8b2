"""Behind a proxy that ends TLS: what PUBLIC_URL makes of the settings, and that people can log in through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "ALLOWED_HOSTS",
    "CSRF_COOKIE_SECURE",
    "CSRF_TRUSTED_ORIGINS",
    "SECURE_HSTS_SECONDS",
    "SECURE_PROXY_SSL_HEADER",
    "SESSION_COOKIE_SECURE",
)
SHOW = f"import json, settings; print(json.dumps({{name: getattr(settings, name) for name in {NAMES}}}))"
PASSWORD = "long-enough-for-a-test"
LOGINS = ["/admin/login/", "/accounts/login/"]


def run(public_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python process in which PUBLIC_URL is what is given."""
    secret = "".join(map(chr, range(33, 127)))
    variables = {
        **os.environ,
        "PUBLIC_URL": public_url,
        "ALLOWED_HOSTS": "127.0.0.1",
        "SECRET_KEY": secret,
        "DEBUG": "",
    }
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True)


def settings_with(public_url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(public_url, "-c", SHOW).stdout)
    return found


@pytest.fixture(scope="module")
def behind_proxy() -> dict[str, Any]:
    """The settings of a service at https://jobs.example."""
    return settings_with("https://jobs.example")


@pytest.fixture
def person(db: None) -> User:
    """Somebody who may log in anywhere."""
    return User.objects.create_superuser("ann", password=PASSWORD)


def log_in(path: str, headers: dict[str, str]) -> tuple[Client, int]:
    """Fill in the form at `path` as a browser does; the status of the answer."""
    client = Client(enforce_csrf_checks=True, headers=headers)
    assert client.get(path).status_code == 200
    form = {"username": "ann", "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"].value}
    return client, client.post(path, form).status_code


@pytest.mark.parametrize("path", LOGINS)
@pytest.mark.parametrize("host", ["jobs.example", "127.0.0.1:8000"])
def test_a_person_logs_in_through_the_proxy(
    person: User, settings: Settings, behind_proxy: dict[str, Any], path: str, host: str
) -> None:
    for name, value in behind_proxy.items():
        setattr(settings, name, tuple(value) if name == "SECURE_PROXY_SSL_HEADER" else value)
    client, status = log_in(
        path, {"X-Forwarded-Proto": "https", "Host": host, "Origin": "https://jobs.example", "Accept": "text/html"}
    )
    assert status == 302
    assert client.cookies["sessionid"]["secure"]
    assert client.cookies["csrftoken"]["secure"]
    assert client.get("/healthz")["Strict-Transport-Security"]


@pytest.mark.parametrize("path", LOGINS)
def test_a_foreign_page_cannot_send_the_form(
    person: User, settings: Settings, behind_proxy: dict[str, Any], path: str
) -> None:
    for name, value in behind_proxy.items():
        setattr(settings, name, tuple(value) if name == "SECURE_PROXY_SSL_HEADER" else value)
    headers = {"X-Forwarded-Proto": "https", "Host": "jobs.example", "Origin": "https://evil.example"}
    assert log_in(path, headers)[1] == 403


@pytest.mark.parametrize("path", LOGINS)
def test_without_it_a_person_logs_in_on_loopback_by_plain_http(person: User, path: str) -> None:
    client, status = log_in(path, {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"})
    assert status == 302
    assert not client.cookies["sessionid"]["secure"]
    assert "Strict-Transport-Security" not in client.get("/healthz")


@pytest.mark.parametrize(
    ("public_url", "host", "secure"),
    [
        ("https://jobs.example:8443", "jobs.example", True),
        ("https://[::1]:8443", "[::1]", True),
        ("http://jobs.example", "jobs.example", False),
    ],
)
def test_its_host_is_allowed_and_only_https_is_insisted_on(public_url: str, host: str, secure: bool) -> None:
    assert settings_with(public_url) == {
        "ALLOWED_HOSTS": ["127.0.0.1", host],
        "CSRF_COOKIE_SECURE": secure,
        "CSRF_TRUSTED_ORIGINS": [public_url],
        "SECURE_HSTS_SECONDS": 2_592_000 if secure else 0,
        "SECURE_PROXY_SSL_HEADER": ["HTTP_X_FORWARDED_PROTO", "https"] if secure else None,
        "SESSION_COOKIE_SECURE": secure,
    }


def test_the_check_before_going_live_has_nothing_to_say() -> None:
    checked = run("https://jobs.example", "manage.py", "check", "--deploy", "--fail-level", "WARNING")
    assert (checked.returncode, "security." in checked.stderr) == (0, False), checked.stderr


def test_a_public_url_that_is_none_stops_the_start() -> None:
    checked = run("jobs.example", "manage.py", "check")
    assert checked.returncode == 1
    assert "PUBLIC_URL must start with http:// or https://" in checked.stderr

"""Settings that must not start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings as django_settings
from pytest_django.fixtures import Settings

from core.checks import check_settings

GOOD_SECRET = "x" * 32


@pytest.fixture
def production(settings: Settings) -> Settings:
    """Settings that an operator could run."""
    settings.DEBUG = False
    settings.SECRET_KEY = GOOD_SECRET
    settings.EGRESS_ALLOW = ()
    settings.ALLOWED_HOSTS = ["jobs.example"]
    settings.ENVIRONMENT = replace(django_settings.ENVIRONMENT, problems=())
    return settings


def ids() -> list[str | None]:
    return [message.id for message in check_settings()]


def test_good_settings_pass(production: Settings) -> None:
    assert ids() == []


def test_every_problem_of_the_environment_is_told(production: Settings) -> None:
    production.ENVIRONMENT = replace(django_settings.ENVIRONMENT, problems=("A is wrong.", "B is wrong."))
    assert [message.msg for message in check_settings()] == ["A is wrong.", "B is wrong."]
    assert ids() == ["core.E001", "core.E001"]


@pytest.mark.parametrize("secret", [django_settings.INSECURE_SECRET_KEY, "x" * 31])
def test_a_weak_secret_key_is_refused(production: Settings, secret: str) -> None:
    production.SECRET_KEY = secret
    assert ids() == ["core.E002"]


@pytest.mark.parametrize(
    "entry", ["0.0.0.0/0", "10.0.0.0/7", "::/0", "fd00::/8", "2001::/31", "::ffff:0:0/96", "::ffff:10.0.0.0/103"]
)
def test_an_opening_too_wide_is_refused(production: Settings, entry: str) -> None:
    production.EGRESS_ALLOW = ("127.0.0.1:8000", entry)
    assert ids() == ["core.E003"]


@pytest.mark.parametrize(
    "entry", ["10.0.0.0/8", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "fd12::/32", "::ffff:a00:0/104"]
)
def test_a_narrow_opening_passes(production: Settings, entry: str) -> None:
    production.EGRESS_ALLOW = (entry,)
    assert ids() == []


def test_debug_is_refused_where_others_reach_the_service(production: Settings) -> None:
    production.DEBUG = True
    assert ids() == ["core.E004"]


def test_debug_on_this_machine_needs_no_secret(production: Settings) -> None:
    production.DEBUG = True
    production.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
    production.SECRET_KEY = django_settings.INSECURE_SECRET_KEY
    production.EGRESS_ALLOW = ("0.0.0.0/0",)
    assert ids() == []

"""Fixtures that every app's tests use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from django.test import Client

from jobs import notices
from tenants.models import ApiKey, Tenant


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests on RabbitMQ need one; CI always has it, and there a missing one is a failure, not a skip."""
    if item.get_closest_marker("amqp") and not os.environ.get("TEST_AMQP_URL"):
        assert not os.environ.get("CI"), "TEST_AMQP_URL is not set; in CI the tests on RabbitMQ must run"
        pytest.skip("TEST_AMQP_URL names no RabbitMQ server, as amqp://guest:guest@127.0.0.1:5672//")


@pytest.fixture
def tenant(db: None) -> Tenant:
    """A tenant without limits."""
    return Tenant.objects.create(name="acme")


@pytest.fixture
def api_key(tenant: Tenant) -> str:
    """The plain text of a key of `tenant` with all scopes."""
    return ApiKey.issue(tenant)[1]


@pytest.fixture
def api(api_key: str) -> Client:
    """A client that sends `api_key`, and meets a 500 as its caller would."""
    return Client(headers={"Authorization": f"Bearer {api_key}"}, raise_request_exception=False)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """The notifier's connection ends first: it would keep the test database from being dropped."""
    yield
    notices.stop()

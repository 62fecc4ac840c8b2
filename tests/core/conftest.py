"""The real web role, one for all tests that talk to it over the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tenants.models import ApiKey, Tenant
from tests.core.web_role import WebRole, running_web_role
from tests.integration.roles import database_url


@pytest.fixture(scope="package")
def web(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebRole]:
    """The web role on the test database."""
    with django_db_blocker.unblock():
        url = database_url()
    with running_web_role(url, tmp_path_factory.mktemp("web") / "log") as role:
        yield role


@pytest.fixture
def head(transactional_db: None) -> bytes:
    """The headers of a caller with a good key."""
    _, key = ApiKey.issue(Tenant.objects.create(name="acme"))
    return b"Host: localhost\r\nConnection: close\r\nAuthorization: Bearer " + key.encode() + b"\r\n"

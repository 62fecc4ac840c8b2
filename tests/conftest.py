"""Fixtures that every app's tests use."""

from __future__ import annotations

import pytest
from django.test import Client

from tenants.models import ApiKey, Tenant


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

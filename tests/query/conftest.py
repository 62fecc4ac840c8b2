"""One tenant and its client for each test of the read side."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import Settings

from tenants.models import Tenant
from tests.factories import client_of, make_tenant


@pytest.fixture
def tenant(db: None) -> Tenant:
    return make_tenant()


@pytest.fixture(autouse=True)
def unreachable_storage(settings: Settings) -> None:
    """A storage that has keys and at whose address nothing listens: what only signs works, what asks it fails."""
    options = {
        **settings.STORAGES["result_links"]["OPTIONS"],
        "endpoint_url": "http://127.0.0.1:9",
        "access_key": "test",
        "secret_key": "test",
    }
    settings.STORAGES = {**settings.STORAGES, "result_links": {**settings.STORAGES["result_links"], "OPTIONS": options}}


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return client_of(tenant)

"""One tenant and its client for each test of the read side."""

from __future__ import annotations

import pytest
from django.test import Client

from tenants.models import Tenant
from tests.factories import client_of, make_tenant


@pytest.fixture
def tenant(db: None) -> Tenant:
    return make_tenant()


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return client_of(tenant)

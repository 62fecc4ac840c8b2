"""The demo tenant's API key and the admin login: the kept ones while the database knows them, else new ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

from devstack.api import Api
from devstack.layout import Secrets
from devstack.management import ManagementFailed, manage

TENANT = "demo"
ADMIN = "admin"
PASSWORD_LENGTH = 20
# createsuperuser fails on a user that is there; here a kept database gets the password that dev.json shows.
MAKE_ADMIN = """
import os
from django.contrib.auth import get_user_model
user, _ = get_user_model().objects.get_or_create(username=os.environ["DJANGO_SUPERUSER_USERNAME"])
user.is_staff = user.is_superuser = user.is_active = True
user.set_password(os.environ["DJANGO_SUPERUSER_PASSWORD"])
user.save()
"""


@dataclass(frozen=True)
class Logins:
    tenant: str
    api_key: str
    admin_user: str
    admin_password: str


async def ensure_logins(base_url: str, secrets: Secrets, environment: Mapping[str, str]) -> Logins:
    """A key and a login that work. Raises ManagementFailed, or ApiFailed when the API stopped answering."""
    password = secrets.random("admin_password", PASSWORD_LENGTH)
    key = secrets.get("api_key") or ""
    with Api(base_url, key) as api:
        known = bool(key) and await asyncio.to_thread(api.accepts_key)
    if not known:
        key = await _make_api_key(environment)
        await _make_admin({**environment, "DJANGO_SUPERUSER_USERNAME": ADMIN, "DJANGO_SUPERUSER_PASSWORD": password})
        secrets.set("api_key", key)
    return Logins(TENANT, key, ADMIN, password)


async def _make_api_key(environment: Mapping[str, str]) -> str:
    try:
        answer = await manage(environment, "create_tenant", TENANT, "--json")
    except ManagementFailed:
        answer = await manage(environment, "create_api_key", TENANT, "--json")  # the tenant is there already
    return str(json.loads(answer)["api_key"])


async def _make_admin(environment: Mapping[str, str]) -> None:
    await manage(environment, "shell", "-c", MAKE_ADMIN)
    await manage(environment, "create_membership", ADMIN, TENANT)

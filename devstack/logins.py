"""The demo tenant's API key and the admin login: the kept ones while the database knows them, else new ones, and with
those the limits of the demo site."""

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
# One process for all of it, as each takes a second or more to start on a small machine. createsuperuser would fail on a
# user that is there; here a kept database gets the password that dev.json shows.
MAKE_LOGINS = """
import os
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
tenant, admin = os.environ["DEV_TENANT"], os.environ["DEV_ADMIN"]
try:
    call_command("create_tenant", tenant, "--json")
except (CommandError, SystemExit):
    call_command("create_api_key", tenant, "--json")
user, _ = get_user_model().objects.get_or_create(username=admin)
user.is_staff = user.is_superuser = user.is_active = True
user.set_password(os.environ["DEV_ADMIN_PASSWORD"])
user.save()
call_command("create_membership", admin, tenant, "--json")
# The demo site is our own: it need not be spared as somebody else's is.
limits = ["--rate", "100", "--burst", "100", "--concurrency", "50", "--no-adaptive"]
call_command("set_host", os.environ["DEV_SITE"], *limits, "--note", "the demo site of this stack", "--json")
"""


@dataclass(frozen=True)
class Logins:
    tenant: str
    api_key: str
    admin_user: str
    admin_password: str


async def ensure_logins(base_url: str, site: str, secrets: Secrets, environment: Mapping[str, str]) -> Logins:
    """A key and a login that work; with new ones the demo site at `site` gets limits of its own.

    Raises ManagementFailed, or ApiFailed when the API stopped answering.
    """
    password = secrets.random("admin_password", PASSWORD_LENGTH)
    key = secrets.get("api_key") or ""
    with Api(base_url, key) as api:
        known = bool(key) and await asyncio.to_thread(api.accepts_key)
    if not known:
        names = {"DEV_TENANT": TENANT, "DEV_ADMIN": ADMIN, "DEV_ADMIN_PASSWORD": password, "DEV_SITE": site}
        output = await manage({**environment, **names}, "shell", "--no-imports", "-c", MAKE_LOGINS)
        key = _api_key_in(output)
        secrets.set("api_key", key)
    return Logins(TENANT, key, ADMIN, password)


def _api_key_in(output: str) -> str:
    """The key in the one JSON line that has one. Raises ManagementFailed."""
    for line in output.splitlines():
        if line.startswith("{") and "api_key" in (answer := json.loads(line)):
            return str(answer["api_key"])
    raise ManagementFailed(f"create_tenant printed no API key but:\n{output}")

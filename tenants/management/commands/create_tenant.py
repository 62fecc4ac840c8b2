"""`manage.py create_tenant`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from core.commands import ServiceCommand
from tenants.arguments import add_fetching, add_limits, fetching_in
from tenants.services import create_tenant, limits_in


class Command(ServiceCommand):
    """Creates a tenant and its first API key."""

    help = "Creates a tenant and its first API key, which is shown this once."
    example = "create_tenant acme --weight 2 --max-running 50 --json"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="1 to 100 printable characters; no two tenants share one.")
        add_limits(parser)
        add_fetching(parser)

    def act(self, **options: Any) -> Mapping[str, Any]:
        tenant, plain = create_tenant(options["name"], limits_in(options) | fetching_in(options))
        return {"tenant": tenant.name, "id": tenant.id, "api_key": plain}

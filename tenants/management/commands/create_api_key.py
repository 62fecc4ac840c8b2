"""`manage.py create_api_key`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from core.commands import ServiceCommand
from tenants.arguments import moment
from tenants.services import find_tenant, issue_key


class Command(ServiceCommand):
    """Creates another API key for a tenant."""

    help = "Creates another API key for a tenant, shown this once; the others stay valid."
    example = "create_api_key acme --scope jobs:read --expires 2030-01-31T12:00:00Z --json"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", help="The tenant's name.")
        parser.add_argument(
            "--scope", action="append", default=[], help="jobs:read or jobs:write; may be repeated; without it, all."
        )
        parser.add_argument("--expires", type=moment, metavar="TIME", help="When it stops to be valid (RFC 3339).")

    def act(self, **options: Any) -> Mapping[str, Any]:
        key, plain = issue_key(
            find_tenant(options["tenant"]), scopes=options["scope"], expires_at=options["expires"], now=timezone.now()
        )
        return {"prefix": key.prefix, "api_key": plain, "scopes": key.scopes, "expires_at": key.expires_at}

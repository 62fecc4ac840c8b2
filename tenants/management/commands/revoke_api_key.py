"""`manage.py revoke_api_key`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from core.commands import ServiceCommand
from tenants.services import revoke_key


class Command(ServiceCommand):
    """Revokes an API key for good."""

    help = "Revokes an API key for good; safe to repeat."
    example = "revoke_api_key sj_Ab12Cd34Ef56 --json"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("prefix", help="What stands before the key's last underscore.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        key = revoke_key(options["prefix"])
        return {"prefix": key.prefix, "revoked_at": key.revoked_at}

"""`manage.py set_tenant`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser

from core.commands import ServiceCommand
from tenants.arguments import add_limits
from tenants.services import LIMITS, find_tenant, limits_in, set_limits


class Command(ServiceCommand):
    """Changes the limits of a tenant."""

    help = "Changes the limits of a tenant; what is not given stays as it is."
    example = "set_tenant acme --max-queued 10000 --no-limit submit-rate"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        add_limits(parser)
        parser.add_argument(
            "--no-limit",
            action="append",
            default=[],
            choices=["max-running", "max-queued", "submit-rate"],
            help="Lifts that limit; may be repeated.",
        )

    def act(self, **options: Any) -> Mapping[str, Any]:
        lifted: dict[str, int | None] = {name.replace("-", "_"): None for name in options["no_limit"]}
        given = limits_in(options)
        if both := lifted.keys() & given.keys():
            raise CommandError(f"{both.pop()} is both given and lifted.")
        tenant = find_tenant(options["name"])
        set_limits(tenant, given | lifted)
        return {"tenant": tenant.name} | {name: getattr(tenant, name) for name in LIMITS}

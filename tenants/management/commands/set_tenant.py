"""`manage.py set_tenant`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser

from core.commands import ServiceCommand
from tenants.arguments import add_fetching, add_limits, fetching_in
from tenants.services import change_tenant, find_tenant, limits_in, settings_of


class Command(ServiceCommand):
    """Changes the limits of a tenant and how its jobs are fetched, pauses and resumes it."""

    help = (
        "Changes the limits of a tenant and how its jobs are fetched, pauses and resumes it; what is not given stays "
        "as it is. Submissions and attempts heed it at once, the publisher within seconds."
    )
    example = "set_tenant acme --max-queued 10000 --no-limit submit-rate --resume"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        add_limits(parser)
        add_fetching(parser)
        parser.add_argument(
            "--no-limit",
            action="append",
            default=[],
            choices=["max-running", "max-queued", "submit-rate"],
            help="Lifts that limit; may be repeated.",
        )
        pausing = parser.add_mutually_exclusive_group()
        pausing.add_argument(
            "--pause",
            dest="paused",
            action="store_true",
            default=None,
            help="Jobs are accepted and wait; those that run go on.",
        )
        pausing.add_argument("--resume", dest="paused", action="store_false", help="Waiting jobs may start again.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        lifted: dict[str, int | None] = {name.replace("-", "_"): None for name in options["no_limit"]}
        given = limits_in(options)
        if both := lifted.keys() & given.keys():
            raise CommandError(f"{both.pop()} is both given and lifted.")
        tenant = find_tenant(options["name"])
        paused = {} if options["paused"] is None else {"paused": bool(options["paused"])}
        change_tenant(tenant, given | lifted | paused | fetching_in(options))
        return {"tenant": tenant.name} | settings_of(tenant)

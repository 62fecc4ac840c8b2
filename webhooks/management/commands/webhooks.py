"""`manage.py webhooks`."""

from __future__ import annotations

import uuid
from argparse import ArgumentTypeError
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from core.commands import ServiceCommand
from core.encoding import rfc3339
from jobs.timestamps import read_time
from tenants.models import Tenant
from tenants.services import find_tenant
from webhooks import replays
from webhooks.endpoint_fields import REPLAYABLE, ReplayRange
from webhooks.models import Endpoint
from webhooks.replays import MAX_REPLAYED

LIMIT: Final = 1000


class Command(ServiceCommand):
    """Lists the endpoints that fail or are disabled, or replays what one of them missed."""

    help = (
        "Lists the webhook endpoints that fail or are disabled, the longest first, with the reason; exit code 1 when "
        "there are any. With --replay ENDPOINT --since TIME sends anew what failed there, each delivery under its own "
        "webhook-id."
    )
    example = "webhooks --replay 0198c6a2-b3c4-7d1e-9f00-112233445566 --since 2027-01-31T08:00:00Z --json"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="NAME", help="Only this tenant's.")
        parser.add_argument("--replay", type=_endpoint_id, metavar="ENDPOINT", help="The endpoint's id.")
        parser.add_argument("--since", type=_moment, metavar="TIME", help="Deliveries made from then on.")
        parser.add_argument("--until", type=_moment, metavar="TIME", help="And before; left out: up to now.")
        parser.add_argument("--status", choices=list(REPLAYABLE), default="failed", help="Those that stand so.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        """Raises UnknownTenant too."""
        tenant = None if options["tenant"] is None else find_tenant(options["tenant"])
        if options["replay"] is not None:
            return {"replayed": _replay(options)}
        if options["since"] is not None or options["until"] is not None:
            raise CommandError("--since and --until go with --replay.")
        return {"endpoints": _in_trouble(tenant)}

    def has_findings(self, result: Mapping[str, Any]) -> bool:
        return bool(result.get("endpoints"))

    def for_people(self, result: Mapping[str, Any]) -> str:
        if "replayed" in result:
            return f"{result['replayed']:,} are sent anew."
        lines = [f"{one['tenant']}  {one['id']}  {one['url']}\n  {_state(one)}" for one in result["endpoints"]]
        return "\n".join(lines) or "No endpoint fails or is disabled."


def _state(one: Mapping[str, Any]) -> str:
    if one["disabled_at"] is not None:
        return f"disabled since {rfc3339(one['disabled_at'])[:19]}: {one['disabled_reason']}"
    return f"failing since {rfc3339(one['failing_since'])[:19]}"


def _in_trouble(tenant: Tenant | None) -> list[dict[str, Any]]:
    living = Endpoint.objects.filter(deleted_at=None)
    rows = living.exclude(failing_since=None, disabled_at=None).order_by("failing_since", "id")
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    found = rows.values("id", "tenant__name", "url", "failing_since", "disabled_at", "disabled_reason")[:LIMIT]
    return [{"tenant": row.pop("tenant__name"), **row} for row in map(dict, found)]


def _replay(options: Mapping[str, Any]) -> int:
    """In pages, each committed by itself, up to what was made until now."""
    if options["since"] is None:
        raise CommandError("Say from when on: --since TIME.")
    endpoint = Endpoint.objects.filter(pk=options["replay"], deleted_at=None).first()
    if endpoint is None:
        raise CommandError(f"There is no endpoint {options['replay']}.")
    if endpoint.disabled_at is not None:
        raise CommandError("The endpoint is disabled; enable it first.")
    chosen = ReplayRange(options["since"], options["until"], REPLAYABLE[options["status"]])
    total = 0
    while (replayed := replays.replay_range(endpoint.pk, chosen)) > 0:
        total += replayed
        if replayed < MAX_REPLAYED:
            break
    return total


def _endpoint_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not an endpoint's id") from error


def _moment(text: str) -> datetime:
    try:
        return read_time(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error

"""`manage.py create_membership`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError, CommandParser

from core.commands import ServiceCommand
from tenants.models import Membership
from tenants.services import find_tenant


class Command(ServiceCommand):
    """Lets a person act for a tenant."""

    help = "Lets a person who can log in act for a tenant; moves them where they belonged to another."
    example = "create_membership alice acme"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username", help="Of a user made by `manage.py createsuperuser` or in the admin.")
        parser.add_argument("tenant", help="The tenant's name.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        user = get_user_model().objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no user named {options['username']!r}.")
        membership, _ = Membership.objects.update_or_create(
            user=user, defaults={"tenant": find_tenant(options["tenant"])}
        )
        return {"username": user.get_username(), "tenant": membership.tenant.name}

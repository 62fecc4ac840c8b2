"""Arguments that several of this app's commands take: which dead letters are meant."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from jobs import error_codes
from jobs.dead_letters import Selection
from jobs.targets import InvalidTarget, hosts_named
from tenants.services import find_tenant


def add_selection(parser: CommandParser) -> None:
    """The three ways to narrow the dead letters; together they narrow further."""
    parser.add_argument("--tenant", metavar="NAME", help="Of this tenant only.")
    parser.add_argument("--host", type=_hosts, help="Of this host only; without a port, its port 80 and its port 443.")
    parser.add_argument("--code", type=_code, help="That ended with this error only, as http_401 or dns_error.")


def selection_in(options: Mapping[str, Any]) -> Selection:
    """The dead letters that a command line names. Raises UnknownTenant."""
    tenant = None if options["tenant"] is None else find_tenant(options["tenant"])
    return Selection(None if tenant is None else tenant.pk, options["host"], options["code"])


def _hosts(text: str) -> list[str]:
    try:
        return hosts_named(text)
    except InvalidTarget as error:
        raise ArgumentTypeError(f"{text!r}: {error}") from error


def _code(text: str) -> str:
    if not error_codes.is_known(text):
        raise ArgumentTypeError(f"{text!r} is no error code; `dead_letters --group` shows those that there are")
    return text

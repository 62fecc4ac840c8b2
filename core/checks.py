"""What Django's system checks say about the settings, before anything starts.

core.E001  a setting cannot be read, or is out of range
core.E002  SECRET_KEY is missing or short while DEBUG is off
core.E003  EGRESS_ALLOW opens more than a /8 (IPv6: a /32) while DEBUG is off
core.E004  DEBUG is on while ALLOWED_HOSTS names a host beyond this machine
"""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, run_checks

from core.networks import Network, read_exemption

_SHORTEST_SECRET = 32
_WIDEST = {4: 8, 6: 32}
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")  # IPv4 in IPv6 clothes
_LOCAL_HOSTS = frozenset({"localhost", ".localhost", "127.0.0.1", "[::1]", "testserver"})


def refuse_bad_settings() -> None:
    """Stop a process that Django does not check by itself (web server, Celery): exit code 1, reasons on stderr."""
    errors = [message for message in run_checks() if message.is_serious()]
    if errors:
        reasons = "".join(f"{error.id}: {error.msg} {error.hint or ''}".rstrip() + "\n" for error in errors)
        sys.stderr.write(f"This process does not start with such settings:\n{reasons}")
        sys.stderr.flush()
        raise SystemExit(1)


def check_settings(**_: Any) -> list[CheckMessage]:
    """All of this module's checks; registered by the app."""
    messages = [Error(problem, id="core.E001") for problem in settings.ENVIRONMENT.problems]
    if settings.DEBUG:
        messages += _debug_beyond_this_machine()
    else:
        messages += _weak_secret_key()
        messages += _wide_egress()
    return list(messages)


def _debug_beyond_this_machine() -> list[Error]:
    beyond = sorted(set(settings.ALLOWED_HOSTS) - _LOCAL_HOSTS)
    if not beyond:
        return []
    return [
        Error(
            f"DEBUG must be off where others reach the service (ALLOWED_HOSTS names {', '.join(beyond)}).",
            hint="DEBUG shows settings and source code to anybody. Unset DEBUG.",
            id="core.E004",
        )
    ]


def _weak_secret_key() -> list[Error]:
    if settings.SECRET_KEY == settings.INSECURE_SECRET_KEY:
        complaint = "SECRET_KEY must be set."
    elif len(settings.SECRET_KEY) < _SHORTEST_SECRET:
        complaint = f"SECRET_KEY must have at least {_SHORTEST_SECRET} characters."
    else:
        return []
    hint = "It signs cursors and sessions. Make one: python -c 'import secrets; print(secrets.token_urlsafe(48))'"
    return [Error(complaint, hint=hint, id="core.E002")]


def _wide_egress() -> list[Error]:
    return [
        Error(
            f"EGRESS_ALLOW holds {entry!r}, which opens more than a /{_WIDEST[4]} (IPv6: a /{_WIDEST[6]}).",
            hint="It lifts the ban on private networks: name the targets only.",
            id="core.E003",
        )
        for entry in settings.EGRESS_ALLOW
        if _is_wide(read_exemption(entry).network)
    ]


def _is_wide(network: Network) -> bool:
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        return network.prefixlen - _MAPPED.prefixlen < _WIDEST[4]
    return network.prefixlen < _WIDEST[network.version]

"""What to type when workers may not fetch the address that the demo was given."""

from __future__ import annotations

import ipaddress
import shlex
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from devstack.ports import LOOPBACK, accepts_connections

PORTS = {"http": 80, "https": 443}


def hint(urls: Sequence[str], allowed: str = "") -> str:
    """The line to paste that lets workers fetch `urls`, beside what `allowed` (EGRESS_ALLOW as it is) lets them."""
    text = "   blocked_target: workers fetch from the public internet only."
    entries = [entry for url in urls for entry in own_addresses(url)]
    if not entries:
        return f"{text} This address redirects to one that is not public, or its port is one for other protocols."
    kept = [part.strip() for part in allowed.split(",") if part.strip()]
    value = ",".join(dict.fromkeys([*kept, *entries]))
    command = f"EGRESS_ALLOW={shlex.quote(value)} ./dev demo {' '.join(map(shlex.quote, urls))}"
    return f"{text} To let them fetch this one:\n   {command}"


def own_addresses(url: str) -> list[str]:
    """The `ip:port` entries for the addresses of `url` that are not public; none when it cannot be resolved."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
        addresses = _resolve(parts.hostname or "", port)
    except (OSError, ValueError, LookupError):
        return []
    private = [address for address in addresses if not address.is_global]
    return [f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}" for address in private]


def _resolve(host: str, port: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """As the service does it: every address counts, but of `localhost` the one that is allowed is enough."""
    if host == "localhost" or host.endswith(".localhost"):
        return [ipaddress.ip_address(LOOPBACK if accepts_connections(LOOPBACK, port) else _loopback6(port))]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(address) for address in dict.fromkeys(str(entry[4][0]) for entry in found)]


def _loopback6(port: int) -> str:
    return "::1" if accepts_connections("::1", port) else LOOPBACK

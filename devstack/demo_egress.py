"""What to type when workers may not fetch the address that the demo was given."""

from __future__ import annotations

import ipaddress
import shlex
import socket
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from devstack.ports import LOOPBACK, accepts_connections

PORTS = {"http": 80, "https": 443}


def hint(urls: Sequence[str], chosen: Mapping[str, str]) -> str:
    """What lets workers fetch `urls`, beside what the settings `chosen` let them."""
    text = "   blocked_target: workers fetch from the public internet only."
    command = remedy(urls, chosen)
    if command is None:
        return f"{text} This address redirects to one that is not public, or to a port that is closed."
    return f"{text} To let them fetch this one:\n   {command}"


def remedy(urls: Sequence[str], chosen: Mapping[str, str]) -> str | None:
    """The line to paste; None where no address of `urls` is private and no port unusual."""
    private = [entry for url in urls for entry in own_addresses(url)]
    needed = {"EGRESS_ALLOW": private, "EGRESS_PORTS": [port for url in urls for port in _unusual_port(url)]}
    words = [
        f"{name}={shlex.quote(','.join(dict.fromkeys([*_listed(chosen.get(name, '')), *entries])))}"
        for name, entries in needed.items()
        if entries
    ]
    return " ".join([*words, "./dev demo", *map(shlex.quote, urls)]) if words else None


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _unusual_port(url: str) -> list[str]:
    """The port of a public target that workers do not connect to by themselves; an exempt address has all of them."""
    try:
        port = urlsplit(url).port
    except ValueError:
        return []
    return [str(port)] if port not in (None, *PORTS.values()) and not own_addresses(url) else []


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

"""IP networks as an operator writes them."""

from __future__ import annotations

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def network_of(entry: str) -> Network | None:
    """The network that an address, address:port or CIDR names (the port is set aside); None when it names none."""
    address, colon, port = entry.rpartition(":")
    if colon and port.isdecimal() and (address.startswith("[") or ":" not in address):
        entry = address if 0 < int(port) < 65536 else ""
    try:
        return ipaddress.ip_network(entry.removeprefix("[").removesuffix("]"), strict=False)
    except ValueError:
        return None

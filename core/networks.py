"""IP addresses: which ones are on the public internet, and networks as an operator writes them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# A list of our own: `ipaddress.is_global` passes 224.0.0.1, 168.63.129.16, ::127.0.0.1, 64:ff9b::a9fe:a9fe, fec0::1,
# 3fff::1 and, on Python 3.11, 2002:7f00:1::. The registries are IANA's of special-purpose addresses (RFC 6890).
DENIED_IPV4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # "this network"; Linux connects 0.0.0.0 to itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier NAT; 100.100.100.200 is Alibaba's metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host agent, a public number that is only ever local
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle's metadata service
        "192.0.2.0/24",
        "192.31.196.0/24",  # AS112: whoever runs a node of it near us answers
        "192.52.193.0/24",  # AMT relays: multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",  # reserved, with 255.255.255.255
    )
)

GLOBAL_IPV6: Final = IPv6Network("2000::/3")
"""All that IANA gives out for the public internet. Everything outside is denied: loopback, ::/96, ::ffff:0:0/96 and
::ffff:0:0:0/96 (IPv4 inside), 64:ff9b::/96 and 64:ff9b:1::/48 (NAT64: an operator on an IPv6-only network must allow it
knowingly, since private IPv4 is reachable through it too), 100::/64, 5f00::/16, fc00::/7, fe80::/10, fec0::/10,
ff00::/8. The clouds' own, fd00:ec2::254 (Amazon) and fd20:ce::254 (Google), lie in fc00::/7."""

DENIED_IPV6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo (IPv4 inside), benchmarks, AMT, AS112, ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4: IPv4 inside
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",
    )
)

ISATAP_MARKERS: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""RFC 5214: the upper half of an interface id whose lower half is an IPv4 address, under any prefix."""

LOOPBACK: Final[tuple[Address, ...]] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet and holds no IPv4 address inside."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in DENIED_IPV4)
    if address not in GLOBAL_IPV6 or (int(address) >> 32) & 0xFFFF_FFFF in ISATAP_MARKERS:
        return False
    return not any(address in network for network in DENIED_IPV6)


def literal(host: str) -> Address | None:
    """The address that `host` spells out, if it does; a URL's host has one spelling only (jobs/targets.py)."""
    try:
        return ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Exemption:
    """One entry of EGRESS_ALLOW: a network, and the one port it is meant for (None: every port)."""

    network: Network
    port: int | None

    def covers(self, address: Address, port: int) -> bool:
        return self.port in (None, port) and address in self.network


def read_exemption(entry: str) -> Exemption:
    """What `ip`, `ip:port`, `[v6]:port` or a network, with or without a port, names.

    Raises ValueError, naming the entry, for one that is none of these; a network with bits set behind its prefix is
    none, since nobody could tell whether one address or all of them are meant.
    """
    text = entry.strip()
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if colon and (bracketed or ":" not in host):
        return Exemption(_network(host.strip("[]"), entry), _port_of(port, entry))
    return Exemption(_network(text.strip("[]"), entry), None)


def read_port(text: str) -> int:
    """Raises ValueError for anything but 1 to 65535 in ASCII digits."""
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= 65535):
        raise ValueError(f"{text!r} is not a port: a number from 1 to 65535")
    return int(text)


def read_ports(entry: str) -> range:
    """The ports that `8080` or `8000-8999` names. Raises ValueError, naming the entry, for anything else."""
    first, dash, last = entry.strip().partition("-")
    try:
        ports = range(read_port(first), read_port(last if dash else first) + 1)
    except ValueError:
        raise ValueError(f"{entry!r} is neither a port nor a range of ports as 8000-8999") from None
    if not ports:
        raise ValueError(f"{entry!r} is a range that ends before it begins")
    return ports


def _port_of(text: str, entry: str) -> int:
    try:
        return read_port(text)
    except ValueError:
        raise ValueError(f"{entry!r} has a port that is not a number from 1 to 65535") from None


def _network(text: str, entry: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise ValueError(f"{entry!r} is not an address, a network or an address with a port: {error}") from None

"""The guard between tenants and our own network: which addresses a fetch may connect to.

It decides on the address about to be connected to, after the one and only resolution, so a name that resolves
differently the second time (DNS rebinding) gains nothing. `ipaddress.is_global` is not trusted: it passes 224.0.0.1,
168.63.129.16, ::127.0.0.1, 64:ff9b::a9fe:a9fe, fec0::1, 3fff::1 and, on Python 3.11, 2002:7f00:1::.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from scraper.outcomes import FetchFailed

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""A name and a port to numeric addresses, best first. Raises OSError (socket.gaierror) when there are none."""

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
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",  # reserved, with 255.255.255.255
    )
)

GLOBAL_IPV6: Final = IPv6Network("2000::/3")
"""All that IANA gives out for the public internet. Everything outside is denied: loopback, ::/96 and ::ffff:0:0/96
(IPv4 inside), 64:ff9b::/96 and 64:ff9b:1::/48 (NAT64: an operator on an IPv6-only network must allow it
knowingly, since private IPv4 is reachable through it too), fc00::/7, fe80::/10, fec0::/10, ff00::/8, 5f00::/16."""

DENIED_IPV6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo (IPv4 inside), benchmarks, ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4: IPv4 inside
        "3fff::/20",
    )
)

ISATAP_MARKERS: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""RFC 5214: the upper half of an interface id whose lower half is an IPv4 address, under any prefix."""

# Fetch standard, "bad port": other protocols listen there, and a tenant's body could speak to them (mail, above all).
# fmt: off
BAD_PORTS: Final = frozenset({
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
    5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
})
# fmt: on

LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")
RESOLVER_THREADS: Final = 16


class BlockedTarget(FetchFailed):
    """The target is none that this service may connect to. Says neither which address nor which rule it was."""

    def __init__(self) -> None:
        super().__init__("blocked_target", "The target's address or port is not one that this service may connect to.")


@dataclass(frozen=True, slots=True)
class _Exemption:
    network: Network
    port: int | None

    def covers(self, address: Address, port: int) -> bool:
        return self.port in (None, port) and address in self.network


class SystemResolver:
    """The operating system's resolver in threads of its own: names that hang must not use up asyncio's few."""

    def __init__(self, threads: int = RESOLVER_THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolver")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, host, port)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    @staticmethod
    def _resolve(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]]:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]


class EgressGuard:
    """Turns a host and port into the addresses that may be connected to, or raises BlockedTarget.

    `allow` exempts from every rule, ports included: CIDRs, `ip`, or `ip:port` (`[v6]:port`). `deny` adds networks
    to the ban, for an operator's own public addresses; an exemption wins over it. `ports`, when given, are the only
    ones connected to; otherwise all but BAD_PORTS. Raises ValueError, naming the entry, for one that is none of these.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        resolver: Resolver | None = None,
        *,
        deny: Sequence[str] = (),
        ports: Sequence[int] | None = None,
    ) -> None:
        self._exemptions = tuple(_parse_exemption(entry) for entry in allow if entry.strip())
        self._denied = tuple(_parse_network(entry, entry) for entry in deny)
        self._ports = None if ports is None else frozenset(ports)
        self._resolver: Resolver = resolver or SystemResolver()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The numeric addresses of `host`, each one checked, in the resolver's order.

        One denied address denies the name: whoever mixes private into public is trying. Raises BlockedTarget, or
        OSError where the name has no address.
        """
        addresses = _literal(host) or await self._named(host, port)
        if not all(self.permits(address, port) for address in addresses):
            raise BlockedTarget
        return [str(address) for address in addresses]

    def permits(self, address: Address, port: int) -> bool:
        if any(exemption.covers(address, port) for exemption in self._exemptions):
            return True
        allowed_port = port not in BAD_PORTS if self._ports is None else port in self._ports
        return allowed_port and is_public(address) and not any(address in network for network in self._denied)

    async def _named(self, host: str, port: int) -> list[Address]:
        name = host.removesuffix(".").lower()
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761: never asked of a server
            return self._loopback(port)
        found = [ip_address(text) for text in await self._resolver(host, port)]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return found

    def _loopback(self, port: int) -> list[Address]:
        """Those loopback addresses that are exempt: whoever allows 127.0.0.1 need not allow ::1 for `localhost`."""
        addresses = [ip_address(text) for text in LOOPBACK_ADDRESSES]
        return [address for address in addresses if self.permits(address, port)] or addresses


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet and holds no IPv4 address inside."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in DENIED_IPV4)
    if address not in GLOBAL_IPV6 or (int(address) >> 32) & 0xFFFF_FFFF in ISATAP_MARKERS:
        return False
    return not any(address in network for network in DENIED_IPV6)


def _literal(host: str) -> list[Address]:
    """The address that `host` spells out, if it does: then no resolver is asked."""
    try:
        return [ip_address(host)]
    except ValueError:
        return []


def _parse_exemption(entry: str) -> _Exemption:
    text = entry.strip()
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if colon and (bracketed or ":" not in host):
        return _Exemption(_parse_network(host.strip("[]"), entry), _parse_port(port, entry))
    return _Exemption(_parse_network(text.strip("[]"), entry), None)


def _parse_network(text: str, entry: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise ValueError(f"{entry!r} is not an address, a network or an address with a port: {error}") from None


def _parse_port(text: str, entry: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise ValueError(f"{entry!r} has a port that is not a number from 1 to 65535")
    return int(text)

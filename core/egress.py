"""What may be connected to, decided without asking anybody: for the egress guard, and for intake, which can tell of a
literal address or a port what the guard will say later."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from core.networks import LOOPBACK, Address, Exemption, is_public, literal, read_exemption, read_ports

USUAL_PORTS: Final = frozenset({80, 443})

# Fetch standard, "bad port": other protocols listen there, and a tenant's body could speak to them (mail, above all).
# fmt: off
BAD_PORTS: Final = frozenset({
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
    5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
})
# fmt: on

REFUSAL: Final = "The target's address or port is not one that this service may connect to."
"""All that a caller is ever told: neither which address it was nor which rule, or our network could be mapped."""


class EgressRules:
    """Which address and port may be connected to.

    `allow` exempts from every rule, ports included: CIDRs, `ip`, or `ip:port` (`[v6]:port`). `ports` are open beside
    80 and 443: `8080` or `8000-8999`; what BAD_PORTS names stays closed. Raises ValueError, naming the entry, for one
    that is none of these.
    """

    def __init__(self, allow: Sequence[str] = (), ports: Sequence[str] = ()) -> None:
        self._exemptions: tuple[Exemption, ...] = tuple(read_exemption(entry) for entry in allow if entry.strip())
        self._ports = USUAL_PORTS.union(*map(read_ports, ports)) - BAD_PORTS

    def permits(self, address: Address, port: int) -> bool:
        """Whether a connection to this very address may be made."""
        if any(exemption.covers(address, port) for exemption in self._exemptions):
            return True
        return port in self._ports and is_public(address)

    def own(self, name: str, port: int) -> Sequence[Address] | None:
        """The addresses of a host that needs no resolver: a literal, or localhost (RFC 6761); None for another name.

        Of localhost those that are permitted, if any is: whoever allows 127.0.0.1 need not allow ::1 for the name.
        """
        address = literal(name)
        if address is not None:
            return [address]
        name = name.removesuffix(".").lower()
        if name != "localhost" and not name.endswith(".localhost"):
            return None
        return [address for address in LOOPBACK if self.permits(address, port)] or LOOPBACK

    def refuses_unseen(self, name: str, port: int) -> bool:
        """Whether the host would be refused whatever a resolver says."""
        addresses = self.own(name, port)
        if addresses is not None:
            return not all(self.permits(address, port) for address in addresses)
        return port not in self._ports and not any(exemption.port in (None, port) for exemption in self._exemptions)


@functools.lru_cache(maxsize=8)
def rules_of(allow: tuple[str, ...], ports: tuple[str, ...]) -> EgressRules:
    """The rules that the settings say, read once."""
    return EgressRules(allow, ports)

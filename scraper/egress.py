"""The guard between tenants and our own network: which addresses a fetch may connect to.

It decides on the address about to be connected to, after the one and only resolution, so a name that resolves
differently the second time (DNS rebinding) gains nothing. The rules themselves are those of core/egress.py.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

from core.egress import REFUSAL, EgressRules
from core.networks import Address
from scraper.outcomes import FetchFailed

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""A name and a port to numeric addresses, best first. Raises OSError (socket.gaierror) when there are none."""

RESOLVER_THREADS: Final = 16


class BlockedTarget(FetchFailed):
    """The target is none that this service may connect to. Says neither which address nor which rule it was."""

    def __init__(self) -> None:
        super().__init__("blocked_target", REFUSAL)


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

    `allow` and `ports` are EgressRules'. Raises ValueError, naming the entry, for one that cannot be read.
    """

    def __init__(
        self, allow: Sequence[str] = (), resolver: Resolver | None = None, *, ports: Sequence[str] = ()
    ) -> None:
        self._rules = EgressRules(allow, ports)
        self._resolver: Resolver = resolver or SystemResolver()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The numeric addresses of `host`, each one checked, in the resolver's order.

        One denied address denies the name: whoever mixes private into public is trying. Raises BlockedTarget, or
        OSError where the name has no address. A name that is refused anyway is not asked of the resolver, which the
        name's owner could be listening at.
        """
        if self._rules.refuses_unseen(host, port):
            raise BlockedTarget
        addresses = self._rules.own(host, port) or await self._named(host, port)
        if not all(self._rules.permits(address, port) for address in addresses):
            raise BlockedTarget
        return [str(address) for address in addresses]

    async def _named(self, host: str, port: int) -> list[Address]:
        found = [ip_address(text) for text in await self._resolver(host, port)]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return found

"""Who may be tried now, so that a place which hangs slows nobody else. Pure: the clock is passed in.

A destination is what shares one fate: an endpoint, or a tenant's callbacks to one host. Each has few tries at once,
each tenant more, the process a bound. One that fails again and again is broken: one try at a time finds out whether it
is back, and all broken ones together get no more than half of the process's tries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_TRIES: Final = 256
MAX_BROKEN_TRIES: Final = 128
TENANT_TRIES: Final = 64
DESTINATION_TRIES: Final = 8
BREAK_AFTER: Final = 10
"""Failures in a row, of whatever kind."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
"""Seconds between two tries of a broken destination."""
FORGET_AFTER: Final = 600.0
"""Seconds without a try after which a destination's failures count no more."""


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery whose time has come."""

    id: str
    destination: str
    tenant: str


@dataclass(slots=True)
class _Destination:
    failures: int = 0
    next_at: float = 0.0  # of a broken destination, by the clock of whoever calls
    pause: float = FIRST_PAUSE

    @property
    def broken(self) -> bool:
        return self.failures >= BREAK_AFTER


@dataclass(slots=True)
class Destinations:
    """What one process knows of its destinations. Forgetting it costs a few tries more."""

    _destinations: dict[str, _Destination] = field(default_factory=dict)
    _in_destination: Counter[str] = field(default_factory=Counter)
    _in_tenant: Counter[str] = field(default_factory=Counter)
    _broken_tries: int = 0
    _counted_as_broken: Counter[str] = field(default_factory=Counter)

    @property
    def under_way(self) -> int:
        return self._in_destination.total()

    def is_full(self) -> bool:
        """Whether the process has as many tries under way as it may."""
        return self.under_way >= MAX_TRIES

    def choose(self, due: Iterable[Due], *, now: float) -> list[Due]:
        """Those of `due` that may be tried now, in their order; nothing is entered for them yet."""
        chosen: list[Due] = []
        destinations: Counter[str] = Counter()
        tenants: Counter[str] = Counter()
        broken = 0
        for one in due:
            if self.under_way + len(chosen) >= MAX_TRIES:
                break
            is_broken = self._is_broken(one.destination)
            room = self._room(one.destination, now) - destinations[one.destination]
            tenant_room = TENANT_TRIES - self._in_tenant[one.tenant] - tenants[one.tenant]
            if min(room, tenant_room) <= 0 or (is_broken and self._broken_tries + broken >= MAX_BROKEN_TRIES):
                continue
            chosen.append(one)
            destinations[one.destination] += 1
            tenants[one.tenant] += 1
            broken += is_broken
        return chosen

    def shut(self, *, now: float) -> list[str]:
        """The destinations that have no room now: there is no use in reading what is due in them."""
        for name in [
            name for name, destination in self._destinations.items() if now - destination.next_at > FORGET_AFTER
        ]:
            del self._destinations[name]
        known = self._destinations.keys() | self._in_destination.keys()
        return [destination for destination in known if self._room(destination, now) <= 0]

    def enter(self, one: Due) -> None:
        """A try begins."""
        if self._is_broken(one.destination):
            self._broken_tries += 1
            self._counted_as_broken[one.destination] += 1
        self._in_destination[one.destination] += 1
        self._in_tenant[one.tenant] += 1

    def leave(self, one: Due, *, well: bool | None, now: float) -> None:
        """A try is over: it went well or not, or says nothing of the place (None)."""
        self._subtract(self._in_destination, one.destination)
        self._subtract(self._in_tenant, one.tenant)
        if self._counted_as_broken[one.destination] > 0:
            self._subtract(self._counted_as_broken, one.destination)
            self._broken_tries -= 1
        if well is True:
            self._destinations.pop(one.destination, None)
        elif well is False:
            self._fail(one.destination, now)

    def _fail(self, name: str, now: float) -> None:
        destination = self._destinations.setdefault(name, _Destination())
        if destination.broken:
            destination.pause = min(2 * destination.pause, LONGEST_PAUSE)
        destination.failures += 1
        destination.next_at = now + destination.pause

    def _is_broken(self, name: str) -> bool:
        destination = self._destinations.get(name)
        return destination is not None and destination.broken

    def _room(self, name: str, now: float) -> int:
        destination = self._destinations.get(name)
        if destination is None or not destination.broken:
            return DESTINATION_TRIES - self._in_destination[name]
        return int(self._in_destination[name] == 0 and now >= destination.next_at)

    @staticmethod
    def _subtract(counter: Counter[str], key: str) -> None:
        counter[key] -= 1
        if counter[key] <= 0:
            del counter[key]

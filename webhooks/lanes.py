"""Who may be tried now, so that a place which hangs slows nobody else. Pure: the clock is passed in.

A lane is what shares one fate: an endpoint, or a tenant's callbacks to one host. Each lane has few tries at once, each
tenant more, the process a bound. A lane that fails again and again is broken: one try at a time finds out whether it is
back, and all broken lanes together get no more than half of the process's tries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_TRIES: Final = 256
MAX_BROKEN_TRIES: Final = 128
TENANT_TRIES: Final = 64
LANE_TRIES: Final = 8
BREAK_AFTER: Final = 10
"""Failures in a row, of whatever kind."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
"""Seconds between two tries of a broken lane."""
FORGET_AFTER: Final = 600.0
"""Seconds without a try after which a lane's failures count no more."""


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery whose time has come."""

    id: str
    lane: str
    tenant: str


@dataclass(slots=True)
class _Lane:
    failures: int = 0
    next_at: float = 0.0  # of a broken lane, by the clock of whoever calls
    pause: float = FIRST_PAUSE

    @property
    def broken(self) -> bool:
        return self.failures >= BREAK_AFTER


@dataclass(slots=True)
class Lanes:
    """What one process knows of its lanes. Forgetting it costs a few tries more."""

    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _in_lane: Counter[str] = field(default_factory=Counter)
    _in_tenant: Counter[str] = field(default_factory=Counter)
    _broken_tries: int = 0
    _counted_as_broken: Counter[str] = field(default_factory=Counter)

    @property
    def under_way(self) -> int:
        return self._in_lane.total()

    def is_full(self) -> bool:
        """Whether the process has as many tries under way as it may."""
        return self.under_way >= MAX_TRIES

    def choose(self, due: Iterable[Due], *, now: float) -> list[Due]:
        """Those of `due` that may be tried now, in their order; nothing is entered for them yet."""
        chosen: list[Due] = []
        lanes: Counter[str] = Counter()
        tenants: Counter[str] = Counter()
        broken = 0
        for one in due:
            if self.under_way + len(chosen) >= MAX_TRIES:
                break
            is_broken = self._is_broken(one.lane)
            room = self._room(one.lane, now) - lanes[one.lane]
            tenant_room = TENANT_TRIES - self._in_tenant[one.tenant] - tenants[one.tenant]
            if min(room, tenant_room) <= 0 or (is_broken and self._broken_tries + broken >= MAX_BROKEN_TRIES):
                continue
            chosen.append(one)
            lanes[one.lane] += 1
            tenants[one.tenant] += 1
            broken += is_broken
        return chosen

    def shut(self, *, now: float) -> list[str]:
        """The lanes that have no room now: there is no use in reading what is due in them."""
        for name in [name for name, lane in self._lanes.items() if now - lane.next_at > FORGET_AFTER]:
            del self._lanes[name]
        known = self._lanes.keys() | self._in_lane.keys()
        return [lane for lane in known if self._room(lane, now) <= 0]

    def enter(self, one: Due) -> None:
        """A try begins."""
        if self._is_broken(one.lane):
            self._broken_tries += 1
            self._counted_as_broken[one.lane] += 1
        self._in_lane[one.lane] += 1
        self._in_tenant[one.tenant] += 1

    def leave(self, one: Due, *, well: bool | None, now: float) -> None:
        """A try is over: it went well or not, or says nothing of the place (None)."""
        self._subtract(self._in_lane, one.lane)
        self._subtract(self._in_tenant, one.tenant)
        if self._counted_as_broken[one.lane] > 0:
            self._subtract(self._counted_as_broken, one.lane)
            self._broken_tries -= 1
        if well is True:
            self._lanes.pop(one.lane, None)
        elif well is False:
            self._fail(one.lane, now)

    def _fail(self, name: str, now: float) -> None:
        lane = self._lanes.setdefault(name, _Lane())
        if lane.broken:
            lane.pause = min(2 * lane.pause, LONGEST_PAUSE)
        lane.failures += 1
        lane.next_at = now + lane.pause

    def _is_broken(self, name: str) -> bool:
        lane = self._lanes.get(name)
        return lane is not None and lane.broken

    def _room(self, name: str, now: float) -> int:
        lane = self._lanes.get(name)
        if lane is None or not lane.broken:
            return LANE_TRIES - self._in_lane[name]
        return int(self._in_lane[name] == 0 and now >= lane.next_at)

    @staticmethod
    def _subtract(counter: Counter[str], key: str) -> None:
        counter[key] -= 1
        if counter[key] <= 0:
            del counter[key]

"""Keeps the fair order fed from the backlog: which lanes have work, and the next rows of those whose turn it is.

Memory is bounded whatever waits: of a lane, the few rows that were asked for, and the names of some hosts.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from jobs import backlog
from jobs.backlog import Candidate, Heads, Position, Request, Walk
from jobs.fairness import FairOrder, Lane

SCAN_SHARE: Final = 0.05  # of the time, at most, for the search for lanes with work
FRESH_SECONDS: Final = 5.0  # a row may commit so long after the time at which it counts as due
FRESH_ROWS: Final = 500
MOST_ROWS: Final = 200  # of one lane in one read
MOST_UNREAD: Final = 256  # hosts of one lane that are remembered without their rows
SPARE_ROWS: Final = 3  # of one lane at least while hosts are parked: those just read may be the next
STARTS: Final = 256  # places of the backlog whose hosts are where the walks of lanes begin
KEPT_STARTS: Final = 2048
STEPS: Final = 2000  # hosts that one read looks at, over all its lanes
MOST_STEPS: Final = 64  # the same of one lane
DEEP_ROWS: Final = 16  # a host that gives so many rows at once keeps its position
KEPT_POSITIONS: Final = 10_000
DRY_SECONDS: Final = (0.5, 30.0)  # after which a lane without a due job is looked at again


class LaneReader:
    """Reads for one `FairOrder`. In each pass: `find` once, `read` while the order is hungry, `end_pass`."""

    def __init__(self, order: FairOrder[Candidate]) -> None:
        self._order = order
        self._scan_seconds = 0.0
        self.forget()

    def forget(self) -> None:
        """Start anew, at the beginning of every lane."""
        self._next_scan = self._dry_until = 0.0
        self.scan_at: float | None = None  # when the last pass left the search for lanes to a later one
        self._dry: set[Lane] = set()  # every host was looked at, and none has a due job that may go and is not known
        self._unfinished: dict[Lane, None] = {}  # nothing was found yet, and some hosts were not looked at
        self._walks: dict[Lane, Walk] = {}
        self._starts: dict[str, None] = {}
        self._positions: dict[Lane, dict[str, Position]] = {}
        self._deep: set[tuple[Lane, str]] = set()

    @property
    def unfinished(self) -> bool:
        """Whether some lane was looked at in part and has given nothing."""
        return bool(self._unfinished)

    def find(self, now: float) -> None:
        """Look for work: what became due lately each time, every lane there is as often as it is cheap."""
        for lane, host in backlog.fresh_hosts(FRESH_SECONDS, FRESH_ROWS):
            if not self._order.remember(lane, [host], most=MOST_UNREAD):
                self._dry.discard(lane)
        for lane in self._unfinished:
            self._order.arm(lane)
        self._unfinished.clear()
        self.scan_at = None if now >= self._next_scan else self._next_scan
        if self.scan_at is None:
            self._find_all(now)

    def _find_all(self, now: float) -> None:
        if now >= self._dry_until:
            self._dry.clear()
            self._dry_until = now + min(DRY_SECONDS[1], DRY_SECONDS[0] + 1000 * self._scan_seconds)
        started = time.monotonic()
        found = backlog.lanes()
        self._learn_starts(backlog.starts(STARTS))
        self._scan_seconds = time.monotonic() - started
        self._dry.intersection_update(found)  # a lane that was empty is looked at as soon as it is not
        for lane in found:
            if lane not in self._dry:
                self._order.arm(lane)
        self._next_scan = now + self._scan_seconds / SCAN_SHARE

    def read(self, wanted: int) -> None:
        """Feed the lanes that are next, each with twice its equal part of `wanted` jobs, by one statement."""
        lanes = self._order.hungry(wanted)
        least = SPARE_ROWS if self._order.parked else 1
        rows = min(MOST_ROWS, max(least, math.ceil(2 * wanted / max(1, self._order.ready()))))
        starts = list(self._starts)
        requests = [self._request(lane, rows, starts) for lane in lanes]
        steps = max(4, min(MOST_STEPS, STEPS // len(lanes)))
        for request, found in zip(requests, backlog.heads(requests, self._order.parked, steps=steps), strict=True):
            self._take(request, found)

    def _request(self, lane: Lane, rows: int, starts: Sequence[str]) -> Request:
        return Request(
            lane,
            rows,
            walk=None if lane in self._dry else self._walks.get(lane) or _first_walk(lane, starts),
            hosts=self._order.wants(lane),
            seen=self._positions.get(lane, {}),
        )

    def _learn_starts(self, hosts: Iterable[str]) -> None:
        """Jobs of one batch are due at one moment, so that only the walks themselves tell of their other hosts."""
        if len(self._starts) < KEPT_STARTS:
            self._starts.update(dict.fromkeys(hosts))

    def _take(self, request: Request, found: Heads) -> None:
        lane = request.lane
        self._learn_starts([*found.counts, *found.passed])
        if found.positions:
            self._positions.setdefault(lane, {}).update(found.positions)
            self._deep.update((lane, host) for host, rows in found.counts.items() if rows >= DEEP_ROWS)
        remembered = self._order.remember(lane, found.passed, most=MOST_UNREAD)
        more = found.more or found.walk is not None
        if found.walk is not None and not found.jobs:
            self._walks[lane] = found.walk
        elif found.last_host:
            self._walks[lane] = Walk(found.last_host, found.last_host)
        self._order.feed(lane, found.jobs, more=more and bool(found.jobs))
        if more and not found.jobs:
            self._unfinished[lane] = None
        elif more:
            self._dry.discard(lane)
        elif remembered:
            self._dry.add(lane)

    def end_pass(self, now: float, chosen: Iterable[Candidate]) -> None:
        """Positions keep rows that are in memory, or chosen and not yet marked, from being read twice. Afterwards only
        those stay that step over the dead head of a long queue, and only where no row can still commit before them."""
        for lane, host in {(Lane(job.priority, job.tenant_id), job.host) for job in chosen}:
            position = self._positions.get(lane, {}).get(host)
            if position is None or self._order.holds(lane, host):
                continue
            if (lane, host) not in self._deep or _seconds(position) > now - 2 * FRESH_SECONDS:
                self._deep.discard((lane, host))
                del self._positions[lane][host]
                if not self._positions[lane]:
                    del self._positions[lane]
        if len(self._deep) > KEPT_POSITIONS:
            self._order.clear()
            self.forget()


def _first_walk(lane: Lane, starts: Sequence[str]) -> Walk:
    """Each lane begins elsewhere: if all began at the first host, it would be at its limit after a few of them, and the
    rest would have been read for nothing."""
    if not starts:
        return Walk()
    start = starts[zlib.crc32(f"{lane.priority} {lane.tenant}".encode()) % len(starts)]
    return Walk(start, start)


def _seconds(position: Position) -> float:
    return datetime.fromisoformat(position[0]).timestamp()

"""Who is next, as decisions without a clock, a database or chance: which priority, whose job, which host.

- Which priority: smooth weighted round robin (nginx's `ngx_http_upstream_get_peer`) over those with a runnable job.
- Whose job: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) over the tenants of that priority.
- Which host: round robin over the tenant's hosts that may be fetched from now.

`FairOrder` puts the three together. It holds in memory only what it is fed; what else there is stays with the caller,
whom it asks for more by name (`Hungry`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from jobs.states import Priority

K = TypeVar("K", bound=Hashable)

PRIORITY_WEIGHTS: Final[dict[int, int]] = {Priority.HIGH: 6, Priority.NORMAL: 3, Priority.LOW: 1}
LEAST_SECONDS: Final = 0.02  # shorter is not told apart, and a job that costs nothing would go on for ever
_KEPT_TAGS: Final = 1024  # virtual times of tenants without work that are kept


class WeightedRoundRobin(Generic[K]):
    """Smooth weighted round robin: of any sum-of-weights turns in a row each ready key gets its weight, spread evenly.

    Only the keys that are ready take part: nothing is held back for an absent one, whose credit stands still meanwhile.
    (Were it set to nothing, a key that is ready every other turn would never be served.) No credit or debt grows beyond
    the sum of the weights.
    """

    def __init__(self, weights: Mapping[K, int]) -> None:
        self._weights = dict(weights)
        self._bound = sum(self._weights.values())
        self._credits: dict[K, int] = dict.fromkeys(self._weights, 0)

    def next(self, ready: Collection[K]) -> K:
        """Whose turn it is among `ready` (not empty, each with a weight); the turn is taken."""
        key = self.peek(ready)
        self.take(ready, key)
        return key

    def peek(self, ready: Collection[K]) -> K:
        """Whose turn it would be; changes nothing. Among equals the one that was named first in the weights."""
        present = [key for key in self._weights if key in ready]
        return max(present, key=lambda key: self._credits[key] + self._weights[key])

    def take(self, ready: Collection[K], key: K) -> None:
        """Give the turn to `key`, one of `ready`."""
        present = [each for each in self._weights if each in ready]
        total = sum(self._weights[each] for each in present)
        for each in present:
            gained = self._weights[each] - (total if each == key else 0)
            self._credits[each] = max(-self._bound, min(self._bound, self._credits[each] + gained))


class TenantQueue(Generic[K]):
    """Start-time fair queueing: the tenant with the least virtual time goes first, and its virtual time then grows by
    what it used, divided by its weight.

    A tenant that wakes starts at its own virtual time or at that of the last one served, whichever is later: it has its
    share at once and no credit for the time in which it asked for nothing.
    """

    def __init__(self) -> None:
        self._tags: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._turn: dict[K, int] = {}  # of the tenants that take part: the number of their only valid heap entry
        self._number = 0
        self._served = 0.0  # the system's virtual time: the start of what was served last

    def __bool__(self) -> bool:
        return bool(self._turn)

    def __len__(self) -> int:
        return len(self._turn)

    def join(self, tenant: K) -> None:
        """The tenant has work that may go. Joining again changes nothing."""
        if tenant not in self._turn:
            self._push(tenant, max(self._tags.get(tenant, 0.0), self._served))

    def leave(self, tenant: K) -> None:
        """The tenant has nothing that may go. Leaving again changes nothing."""
        if self._turn.pop(tenant, None) is not None and len(self._tags) > 2 * len(self._turn) + _KEPT_TAGS:
            self._tags = {key: self._tags[key] for key in self._turn}  # who is away is forgiven what it is ahead

    def peek(self) -> K:
        """Whose turn it is; there must be somebody."""
        while self._turn.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def charge(self, tenant: K, cost: float) -> None:
        """The tenant had its turn, for `cost` = seconds / weight."""
        tag = self._tags[tenant]
        self._served = max(self._served, tag)
        self._push(tenant, tag + cost)

    def soonest(self, limit: int) -> list[K]:
        """Up to `limit` tenants in the order in which they stand now."""
        entries = [entry for entry in self._heap if self._turn.get(entry[2]) == entry[1]]
        return [entry[2] for entry in heapq.nsmallest(limit, entries)]

    def _push(self, tenant: K, tag: float) -> None:
        self._number += 1
        self._tags[tenant] = tag
        self._turn[tenant] = self._number
        heapq.heappush(self._heap, (tag, self._number, tenant))
        if len(self._heap) > 2 * len(self._turn) + _KEPT_TAGS:
            self._heap = [entry for entry in self._heap if self._turn.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)


class HasHost(Protocol):
    """Anything that goes to a host; must be hashable, as what is fed twice counts once."""

    @property
    def host(self) -> str: ...


J = TypeVar("J", bound=HasHost)


class Lane(NamedTuple):
    """The jobs of one tenant in one priority."""

    priority: int
    tenant: Hashable


@dataclass(frozen=True, slots=True)
class Share:
    """What a tenant may use: its part relative to others with work, and how many jobs in flight at most."""

    weight: int = 1
    max_running: int | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Hungry:
    """This lane is next, and nothing of it is in memory: feed it and ask again."""

    lane: Lane


class _LaneBuffer(Generic[J]):
    """What is in memory of one lane, by host."""

    def __init__(self) -> None:
        self.jobs: dict[str, deque[J]] = {}
        self.turns: dict[str, None] = {}  # hosts that have a job here and may go, the next one first
        self.unread: dict[str, None] = {}  # hosts that have jobs of which none was read
        self.known: set[J] = set()
        self.more = False

    def put(self, job: J, *, parked: bool) -> None:
        if job in self.known:
            return
        self.known.add(job)
        self.jobs.setdefault(job.host, deque()).append(job)
        if not parked:
            self.turns.setdefault(job.host)

    def take(self) -> J:
        host = next(iter(self.turns))
        del self.turns[host]
        job = self.jobs[host].popleft()
        self.known.discard(job)
        if self.jobs[host]:
            self.turns[host] = None
        else:
            del self.jobs[host]
        return job


class FairOrder(Generic[J]):
    """Picks one job after another. Tell it of tenants, of what is in flight and of hosts that may not go; feed it.

    With everything in memory (`feed(..., more=False)`, the default) `pick` never answers `Hungry`::

        order = FairOrder[Job]()
        order.set_tenant("shop", Share(weight=3))
        order.feed(Lane(Priority.HIGH, "shop"), [job])
        order.pick()            # job, or None when nothing may go
        order.ended("shop")     # one job fewer in flight

    A tenant of which nothing was said has `Share()`. `expected` gives the seconds that a tenant's job will take a slot;
    by default all take the same. One thread only.
    """

    def __init__(
        self,
        *,
        weights: Mapping[int, int] = PRIORITY_WEIGHTS,
        expected: Callable[[Hashable], float] = lambda tenant: 1.0,
    ) -> None:
        self._weights = dict(weights)
        self._robin = WeightedRoundRobin(weights)
        self._queues: dict[int, TenantQueue[Hashable]] = {priority: TenantQueue() for priority in weights}
        self._expected = expected
        self._lanes: dict[Lane, _LaneBuffer[J]] = {}
        self._lanes_of_host: dict[str, dict[Lane, None]] = {}
        self._shares: dict[Hashable, Share] = {}
        self._in_flight: dict[Hashable, int] = {}
        self._parked: set[str] = set()

    # what is known of tenants

    def set_tenant(self, tenant: Hashable, share: Share) -> None:
        """A tenant's weight and limits, from now on."""
        self._shares[tenant] = share
        self._settle_tenant(tenant)

    def set_tenants(self, shares: Mapping[Hashable, Share]) -> None:
        """All tenants' weights and limits; who is not named has `Share()`."""
        changed = [tenant for tenant in {**self._shares, **shares} if self._shares.get(tenant) != shares.get(tenant)]
        self._shares = dict(shares)
        for tenant in changed:
            self._settle_tenant(tenant)

    def set_in_flight(self, counts: Mapping[Hashable, int]) -> None:
        """How many jobs of each tenant are in flight over all priorities; who is not named has none."""
        self._in_flight = dict(counts)
        for tenant, share in self._shares.items():
            if share.max_running is not None:
                self._settle_tenant(tenant)

    def ended(self, tenant: Hashable) -> None:
        """One job of the tenant is no longer in flight: for those who count themselves and not by set_in_flight."""
        self._in_flight[tenant] = max(0, self._in_flight.get(tenant, 0) - 1)
        self._settle_tenant(tenant)

    def held_back(self, tenant: Hashable) -> str | None:
        """Why nothing of the tenant may go: `tenant_paused`, `tenant_limit`, or None when it may."""
        share = self._shares.get(tenant)
        if share is None:
            return None
        if share.paused:
            return "tenant_paused"
        if share.max_running is not None and self._in_flight.get(tenant, 0) >= share.max_running:
            return "tenant_limit"
        return None

    # hosts

    def park(self, host: str) -> None:
        """The host may not be fetched from: only its own jobs wait, and nobody else's behind them."""
        if host not in self._parked:
            self._parked.add(host)
            for lane in self._lanes_of_host.get(host, ()):
                self._lanes[lane].turns.pop(host, None)
                self._settle(lane)

    def unpark(self, host: str) -> None:
        """The host may go again."""
        if host in self._parked:
            self._parked.remove(host)
            for lane in self._lanes_of_host.get(host, ()):
                if host in self._lanes[lane].jobs:
                    self._lanes[lane].turns.setdefault(host)
                self._settle(lane)

    @property
    def parked(self) -> Collection[str]:
        """The hosts that may not go."""
        return self._parked

    # the jobs

    def feed(self, lane: Lane, jobs: Iterable[J], *, more: bool = False) -> None:
        """Add jobs of the lane, in their order. `more`: there may be others whose host may go, elsewhere."""
        buffer = self._lanes.setdefault(lane, _LaneBuffer())
        buffer.more = more
        for job in jobs:
            buffer.put(job, parked=job.host in self._parked)
            buffer.unread.pop(job.host, None)
            self._lanes_of_host.setdefault(job.host, {})[lane] = None
        self._settle(lane)

    def remember(self, lane: Lane, hosts: Iterable[str], *, most: int) -> bool:
        """The lane has jobs of these hosts that were not read; it asks for them (`wants`) once their host may go.

        At most `most` hosts are remembered of a lane, and one that may go takes the place of one that may not; answers
        whether there was room for all.
        """
        buffer = self._lanes.setdefault(lane, _LaneBuffer())
        new = [host for host in dict.fromkeys(hosts) if host not in buffer.jobs and host not in buffer.unread]
        too_many = len(buffer.unread) + len(new) - most
        if too_many > 0 and (free := [host for host in new if host not in self._parked]):
            new = [*free, *(host for host in new if host in self._parked)]
            parked = [host for host in buffer.unread if host in self._parked]
            for host in parked[: min(too_many, len(free))]:
                self._drop_unread(lane, host)
        for host in new[: max(0, most - len(buffer.unread))]:
            buffer.unread[host] = None
            self._lanes_of_host.setdefault(host, {})[lane] = None
        self._settle(lane)
        return too_many <= 0

    def arm(self, lane: Lane) -> None:
        """There may be jobs of this lane that were not read."""
        buffer = self._lanes.setdefault(lane, _LaneBuffer())
        if not buffer.more:
            buffer.more = True
            self._settle(lane)

    def wants(self, lane: Lane) -> list[str]:
        """The hosts of the lane that are to be read and may go. The caller reads them, and they are forgotten here."""
        buffer = self._lanes.get(lane)
        found = [] if buffer is None else [host for host in buffer.unread if host not in self._parked]
        for host in found:
            self._drop_unread(lane, host)
        return found

    def hungry(self, limit: int) -> list[Lane]:
        """Those lanes among the next `limit` that have nothing in memory, the soonest of each priority first."""
        present = {priority: queue for priority, queue in self._queues.items() if queue}
        total = sum(self._weights[priority] for priority in present)
        return [
            Lane(priority, tenant)
            for priority, queue in present.items()
            for tenant in queue.soonest(-(-limit * self._weights[priority] // total))
            if not self._lanes[Lane(priority, tenant)].turns
        ]

    def ready(self) -> int:
        """How many lanes may have a job that may go."""
        return sum(len(queue) for queue in self._queues.values())

    def holds(self, lane: Lane, host: str) -> bool:
        """Whether a job of the lane for this host is in memory."""
        return lane in self._lanes and host in self._lanes[lane].jobs

    def buffered(self) -> int:
        """How many jobs are in memory."""
        return sum(len(buffer.known) for buffer in self._lanes.values())

    def waiting(self) -> list[Lane]:
        """The lanes that have a job, or may have one, whether or not it may go."""
        return list(self._lanes)

    def waits_for(self, host: str) -> bool:
        """Whether a job of this host is known."""
        return host in self._lanes_of_host

    def pick(self) -> J | Hungry | None:
        """The next job; or which lane must be fed first (nothing has changed then); or None when nothing may go."""
        ready = [priority for priority, queue in self._queues.items() if queue]
        if not ready:
            return None
        priority = self._robin.peek(ready)
        queue = self._queues[priority]
        tenant = queue.peek()
        lane = Lane(priority, tenant)
        buffer = self._lanes[lane]
        if not buffer.turns:
            return Hungry(lane)
        self._robin.take(ready, priority)
        job = buffer.take()
        share = self._shares.get(tenant, _DEFAULT_SHARE)
        queue.charge(tenant, max(LEAST_SECONDS, self._expected(tenant)) / share.weight)
        self._in_flight[tenant] = self._in_flight.get(tenant, 0) + 1
        self._forget_host(lane, job.host)
        self._settle(lane)
        if share.max_running is not None:
            self._settle_tenant(tenant)
        return job

    def clear(self) -> None:
        """Forget all jobs; virtual times, shares and parked hosts stay."""
        for lane in list(self._lanes):
            self._queues[lane.priority].leave(lane.tenant)
        self._lanes.clear()
        self._lanes_of_host.clear()

    def _drop_unread(self, lane: Lane, host: str) -> None:
        self._lanes[lane].unread.pop(host, None)
        self._forget_host(lane, host)

    def _forget_host(self, lane: Lane, host: str) -> None:
        buffer = self._lanes[lane]
        if host not in buffer.jobs and host not in buffer.unread:
            lanes = self._lanes_of_host[host]
            lanes.pop(lane, None)
            if not lanes:
                del self._lanes_of_host[host]

    def _settle_tenant(self, tenant: Hashable) -> None:
        for priority in self._queues:
            if Lane(priority, tenant) in self._lanes:
                self._settle(Lane(priority, tenant))

    def _settle(self, lane: Lane) -> None:
        """Let the lane take part exactly while it has something that may go."""
        buffer = self._lanes[lane]
        queue = self._queues[lane.priority]
        may_go = buffer.turns or buffer.more or any(host not in self._parked for host in buffer.unread)
        if may_go and self.held_back(lane.tenant) is None:
            queue.join(lane.tenant)
        else:
            queue.leave(lane.tenant)
            if not (buffer.more or buffer.jobs or buffer.unread):
                del self._lanes[lane]


_DEFAULT_SHARE: Final = Share()

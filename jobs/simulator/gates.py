"""When a host may be called in a simulation: by its rate, its connections and its blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from math import floor, inf

from jobs.simulator.scenario import HostPlan

_FREE = HostPlan()


class HostGates:
    """All hosts of a run. A host without a plan may always be called."""

    def __init__(self, plans: dict[str, HostPlan]) -> None:
        self._plans = plans
        # The hosts that may be closed, so that a look is not at all of them: those with blocks, and whoever was called.
        self._suspects = dict.fromkeys(host for host, plan in plans.items() if plan.blocked)
        self._running: Counter[str] = Counter()
        # The generic cell rate algorithm (ITU-T I.371): a token bucket kept as the moment at which it is full again.
        # Unlike a sum of tokens it is exact: a host may go when the clock shows the very moment that `ready_at` named.
        self._full_at: dict[str, float] = {}

    def start(self, host: str, now: float) -> None:
        """A request goes out."""
        plan = self._plans.get(host, _FREE)
        self._running[host] += 1
        if host in self._plans:
            self._suspects[host] = None
        if plan.rate is not None:
            self._full_at[host] = max(now, self._full_at.get(host, 0.0)) + 1.0 / plan.rate

    def end(self, host: str) -> None:
        """It is over."""
        self._running[host] -= 1

    def may_go(self, host: str, now: float) -> bool:
        """Whether one more request may go out now."""
        return host not in self._plans or self.ready_at(host, now) <= now

    def ready_at(self, host: str, now: float) -> float:
        """The first moment from now on at which a request may go out; infinite while a running one must end first."""
        plan = self._plans.get(host, _FREE)
        if plan.concurrency is not None and self._running[host] >= plan.concurrency:
            return inf
        ready = now
        if plan.rate is not None:
            ready = max(now, self._full_at.get(host, 0.0) - (plan.burst - 1) / plan.rate)
        for since, until in plan.blocked:
            if since <= ready < until:
                ready = until
        return ready

    def closed(self, now: float) -> list[str]:
        """The hosts that may not be called now."""
        found = [host for host in self._suspects if not self.may_go(host, now)]
        if 2 * len(found) < len(self._suspects):
            blocked = [host for host in self._suspects if self._plans[host].blocked]
            self._suspects = dict.fromkeys([*blocked, *found])
        return found

    def next_opening(self, hosts: Container[str], now: float) -> float:
        """When the next of these hosts opens that is closed now; infinite if that takes more than time."""
        opening = (self.ready_at(host, now) for host in self._suspects if host in hosts)
        return min((moment for moment in opening if moment > now), default=inf)

    def room(self, host: str, now: float) -> float:
        """How many requests could go out at this moment."""
        plan = self._plans.get(host, _FREE)
        if not self.may_go(host, now):
            return 0
        free = inf if plan.concurrency is None else plan.concurrency - self._running[host]
        if plan.rate is None:
            return free
        return min(free, floor(plan.burst - max(0.0, self._full_at.get(host, 0.0) - now) * plan.rate + 1e-9))

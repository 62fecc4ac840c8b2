"""Who is next, in a simulation: the service's own fair order, or first come, first served, to compare it with."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from jobs.fairness import PRIORITY_WEIGHTS, FairOrder, Lane, Share, WeightedRoundRobin
from jobs.simulator.gates import HostGates
from jobs.simulator.scenario import Scenario, SimulatedJob

ORDERS: Final = ("fair", "shared")
PRIORITIES: Final = ("weights", "strict")


class Order(Protocol):
    """Holds the jobs that wait and says which one starts when a slot is free."""

    def add(self, job: SimulatedJob) -> None:
        """The job waits from now on."""

    def take(self, now: float) -> SimulatedJob | None:
        """The next job, which the caller starts at once; None if none may run now."""

    def ended(self, job: SimulatedJob) -> None:
        """The job runs no longer."""


def order_named(order: str, priorities: str, scenario: Scenario, gates: HostGates) -> Order:
    """One of ORDERS with one of PRIORITIES."""
    if order == "shared":
        return SharedQueue(gates, strict=priorities == "strict")
    if priorities == "strict":
        return StrictFair(scenario, gates)
    return Fair(scenario, gates)


class Fair:
    """The order of the service, `jobs.fairness.FairOrder`, told of everything that its dispatcher would tell it."""

    def __init__(self, scenario: Scenario, gates: HostGates) -> None:
        lengths = [(plan.duration or scenario.duration).mean for plan in scenario.tenants]
        self._order = FairOrder[SimulatedJob](expected=lambda tenant: lengths[int(str(tenant))])
        for index, plan in enumerate(scenario.tenants):
            self._order.set_tenant(index, Share(plan.weight, plan.max_running))
        self._gates = gates
        self._parked: dict[str, None] = {}  # in order: that of a set is another one in each process

    def add(self, job: SimulatedJob) -> None:
        """Feed it to its lane."""
        self._order.feed(Lane(job.priority, job.tenant), [job])

    def take(self, now: float) -> SimulatedJob | None:
        """Ask, once the hosts that may not go are parked and the others are not."""
        closed = dict.fromkeys(self._gates.closed(now))
        for host in [host for host in self._parked if host not in closed]:
            self._order.unpark(host)
        for host in closed:
            self._order.park(host)
        self._parked = closed
        picked = self._order.pick()
        return picked if isinstance(picked, SimulatedJob) else None  # all is in memory: it never asks to be fed

    def ended(self, job: SimulatedJob) -> None:
        """One fewer of the tenant."""
        self._order.ended(job.tenant)


class StrictFair:
    """A fair order for each priority, and a lower one is asked only when no higher one has a job that may run."""

    def __init__(self, scenario: Scenario, gates: HostGates) -> None:
        # A tenant of a scenario has one priority, so that no limit of its own needs to hold across the orders.
        self._orders = {priority: Fair(scenario, gates) for priority in sorted(PRIORITY_WEIGHTS)}

    def add(self, job: SimulatedJob) -> None:
        """Leave it to the order of its priority."""
        self._orders[job.priority].add(job)

    def take(self, now: float) -> SimulatedJob | None:
        """The first that any order names, the highest priority asked first."""
        return next((job for order in self._orders.values() if (job := order.take(now)) is not None), None)

    def ended(self, job: SimulatedJob) -> None:
        """Tell the order of its priority."""
        self._orders[job.priority].ended(job)


class SharedQueue:
    """First come, first served, one queue a priority. It knows no tenants, so no weight and no `max_running` either.

    While the host of the first job may not be called, all behind it wait as well.
    """

    def __init__(self, gates: HostGates, *, strict: bool) -> None:
        self._queues: dict[int, deque[SimulatedJob]] = {priority: deque() for priority in sorted(PRIORITY_WEIGHTS)}
        self._robin = WeightedRoundRobin(PRIORITY_WEIGHTS)
        self._gates = gates
        self._strict = strict

    def add(self, job: SimulatedJob) -> None:
        """To the end of the queue."""
        self._queues[job.priority].append(job)

    def take(self, now: float) -> SimulatedJob | None:
        """The first of the queue whose turn it is."""
        ready = [key for key, queue in self._queues.items() if queue and self._gates.may_go(queue[0].host, now)]
        if not ready:
            return None
        return self._queues[ready[0] if self._strict else self._robin.next(ready)].popleft()

    def ended(self, job: SimulatedJob) -> None:
        """No matter."""

"""The jobs of a scenario in the order in which they are posted, made one by one: a run holds only those that wait."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count, cycle
from operator import attrgetter
from random import Random

from jobs.simulator.scenario import Scenario, SimulatedJob, TenantPlan


def arrivals(scenario: Scenario) -> Iterator[SimulatedJob]:
    """Every job posted before the horizon, by time; those of the same moment in the order of the tenants."""
    streams = [_posted_by(scenario, index, tenant) for index, tenant in enumerate(scenario.tenants)]
    return heapq.merge(*streams, key=attrgetter("submitted"))


def _posted_by(scenario: Scenario, index: int, tenant: TenantPlan) -> Iterator[SimulatedJob]:
    # A random source for each tenant and use: a change to one tenant leaves the others' jobs as they were.
    moments = heapq.merge(_bursts(tenant), _flow(tenant, Random(f"{scenario.seed} {tenant.name} flow")))  # noqa: S311 (no secret)
    lengths = Random(f"{scenario.seed} {tenant.name} duration")  # noqa: S311 (no secret)
    duration = tenant.duration or scenario.duration
    hosts = cycle(tenant.hosts or (f"{tenant.name}'s own",))
    for moment in moments:
        if moment >= scenario.horizon:
            return
        yield SimulatedJob(index, tenant.priority, next(hosts), moment, duration.draw(lengths))


def _bursts(tenant: TenantPlan) -> Iterator[float]:
    for burst in sorted(tenant.bursts, key=attrgetter("at")):
        for _ in range(burst.jobs):
            yield burst.at


def _flow(tenant: TenantPlan, random: Random) -> Iterator[float]:
    """Evenly spaced, or a Poisson process: the gaps between independent callers' jobs are exponential."""
    if not tenant.flow:
        return
    if tenant.evenly:
        yield from (number / tenant.flow for number in count())
    moment = 0.0
    while True:
        moment += random.expovariate(tenant.flow)
        yield moment

"""What a run says in figures: waits, shares of the pool, and how fair they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from jobs.simulator.record import Outcome, Sample
from jobs.simulator.scenario import Scenario

WINDOW_IN_JOBS: Final = (
    5.0  # shares are judged over so many mean running times: a slot is never taken from a running job
)


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """One tenant's run. Waits are seconds, None for a tenant that posted nothing; `share` is between 0 and 1."""

    name: str
    submitted: int
    started: int
    done: int
    wait_p50: float | None
    wait_p95: float | None
    share: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """Slots by tenant over contended time: what each had on average, and what a fair division would have given it."""

    had: list[float]
    fair: list[float]


def tenant_figures(outcome: Outcome) -> list[TenantFigures]:
    """One line a tenant, in the scenario's order.

    `share` is the tenant's part of all slot-seconds used while the pool was contended (see `allocation`), or in the
    whole run if it never was: once everything has ended, each order has given everybody the same.
    """
    had = allocation(outcome).had
    used = sum(had) or 1.0
    return [
        TenantFigures(
            plan.name,
            tally.submitted,
            tally.started,
            tally.done,
            percentile(tally.waits, 0.50),
            percentile(tally.waits, 0.95),
            round(slots / used, 4),
        )
        for plan, tally, slots in zip(outcome.scenario.tenants, outcome.tallies, had, strict=True)
    ]


def percentile(values: Sequence[float], part: float) -> float | None:
    """The smallest value that `part` of all values do not exceed (nearest rank), to the millisecond; None of none."""
    if not values:
        return None
    return round(sorted(values)[max(0, ceil(part * len(values)) - 1)], 3)


def jain(outcome: Outcome) -> float:
    """Jain's index over the tenants that had work while the pool was contended: 1 is fair, 1/n is one having it all.

    (sum x)^2 / (n * sum x^2), where x is what a tenant had divided by its weighted max-min fair share, what it should
    have had. Priorities are no part of it: they are there to prefer somebody's jobs. 1 if nobody competed.
    R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared
    Computer Systems, DEC-TR-301, 1984.
    """
    slots = allocation(outcome)
    ratios = [had / fair for had, fair in zip(slots.had, slots.fair, strict=True) if fair > 0.0]
    squares = sum(ratio * ratio for ratio in ratios)
    return round(sum(ratios) ** 2 / (len(ratios) * squares), 4) if squares else 1.0


def allocation(outcome: Outcome) -> Allocation:
    """What each tenant had and should have had, averaged over the contended windows, or over all if none was.

    A window lasts WINDOW_IN_JOBS mean running times. A tenant could have used in it what it had, and one slot more for
    each job that a host would have taken throughout: to wait a moment for the next slot to fall free is no injustice.
    A window is contended if two tenants or more had work and one of them could have used more.
    """
    scenario = outcome.scenario
    windows = [_Window.over(scenario, samples) for samples in _windows(outcome)]
    contended = [window for window in windows if window.contended] or windows
    fair = [max_min(float(scenario.slots), window.demand, _weights(scenario)) for window in contended]
    return Allocation(_means([window.had for window in contended]), _means(fair))


def max_min(capacity: float, demands: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Divide a capacity by weight; what one cannot use goes to the others by theirs (progressive filling)."""
    given = [0.0] * len(demands)
    open_weight = sum(weights)
    for index in sorted(range(len(demands)), key=lambda index: demands[index] / weights[index]):
        given[index] = min(demands[index], capacity * weights[index] / open_weight)
        capacity -= given[index]
        open_weight -= weights[index]
    return given


@dataclass(frozen=True, slots=True)
class _Window:
    """By tenant: slots had on average, and slots it could have used."""

    had: list[float]
    demand: list[float]
    contended: bool

    @classmethod
    def over(cls, scenario: Scenario, samples: Sequence[Sample]) -> _Window:
        had = _means([sample.running for sample in samples])
        spare = [min(counts) for counts in zip(*(sample.runnable for sample in samples), strict=True)]
        most = [tenant.max_running or scenario.slots for tenant in scenario.tenants]
        demand = [min(a + b, c) for a, b, c in zip(had, spare, most, strict=True)]
        wanted_more = any(asked > got for asked, got in zip(demand, had, strict=True))
        return cls(had, demand, wanted_more and sum(asked > 0.0 for asked in demand) > 1)


def _windows(outcome: Outcome) -> Iterator[list[Sample]]:
    """The samples, cut into windows of about the right length; the last may be shorter."""
    scenario = outcome.scenario
    seconds = WINDOW_IN_JOBS * max((plan.duration or scenario.duration).mean for plan in scenario.tenants)
    size = max(1, ceil(len(outcome.samples) * min(1.0, seconds / scenario.horizon)))
    for first in range(0, len(outcome.samples), size):
        yield outcome.samples[first : first + size]


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _weights(scenario: Scenario) -> list[float]:
    return [float(tenant.weight) for tenant in scenario.tenants]

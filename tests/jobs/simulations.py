"""Runs of the simulator, as its tests make them."""

from __future__ import annotations

from jobs.simulator.figures import TenantFigures, tenant_figures
from jobs.simulator.gates import HostGates
from jobs.simulator.orders import order_named
from jobs.simulator.pool import simulate
from jobs.simulator.reading import parse, read
from jobs.simulator.record import Outcome
from jobs.simulator.scenario import Scenario


def run(scenario: Scenario | str, order: str = "fair", priorities: str = "weights") -> Outcome:
    """Simulate a scenario, or the shipped one of that name."""
    known = read(scenario) if isinstance(scenario, str) else scenario
    gates = HostGates(known.hosts)
    return simulate(known, order_named(order, priorities, known, gates), gates)


def of(text: str, order: str = "fair", priorities: str = "weights") -> Outcome:
    """Simulate what a TOML text describes."""
    return run(parse(text), order, priorities)


def by_name(outcome: Outcome) -> dict[str, TenantFigures]:
    """The figures of each tenant."""
    return {figures.name: figures for figures in tenant_figures(outcome)}


def starts(outcome: Outcome, name: str) -> list[float]:
    """When the tenant's jobs started, in order."""
    tenants = [tenant.name for tenant in outcome.scenario.tenants]
    return sorted(run.start for run in outcome.runs if tenants[run.tenant] == name)

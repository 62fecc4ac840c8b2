"""Scenarios from TOML: what may stand in a file. docs/fairness.md tells it to those who write one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from jobs.simulator.scenario import Burst, Duration, HostPlan, Scenario, TenantPlan
from jobs.simulator.toml_tables import Keys, Table, Value, WrongValue, as_name, as_number, as_whole, shown
from jobs.states import Priority

SHIPPED: Final = Path(__file__).parent / "scenarios"

MOST_BYTES: Final = 1024 * 1024
MOST_JOBS: Final = 1_000_000
MOST_SLOTS: Final = 10_000
MOST_SECONDS: Final = 1_000_000.0  # more than eleven days
MOST_TENANTS: Final = 100
MOST_HOSTS: Final = 100
MOST_ENTRIES: Final = 1_000  # bursts of a tenant, hosts of a tenant, blocks of a host
_DISTRIBUTIONS: Final = ("fixed", "uniform", "exponential", "lognormal")
_PRIORITIES: Final = {priority.label: priority for priority in Priority}


class InvalidScenario(ValueError):
    """A scenario that cannot be run; the message says which key, what is wrong with it, and where."""


def shipped_names() -> list[str]:
    """The scenarios that come with the project."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read(name: str) -> Scenario:
    """The scenario in a file, or the shipped one of that name. Raises InvalidScenario."""
    return parse(_text(SHIPPED / f"{name}.toml" if name in shipped_names() else Path(name)))


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise InvalidScenario(
                f"{path} is no file, nor one of the scenarios that come along: {', '.join(shipped_names())}"
            )
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InvalidScenario(f"{path} is larger than {MOST_BYTES:,} bytes")
        return content.decode()
    except OSError as error:
        raise InvalidScenario(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidScenario(f"{path} is not UTF-8: byte {error.start}") from error
    except ValueError as error:
        if isinstance(error, InvalidScenario):
            raise
        raise InvalidScenario(f"{str(path)!r} is no path") from error


def parse(text: str) -> Scenario:
    """The scenario that a TOML text describes. Raises InvalidScenario."""
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise InvalidScenario("the values are nested too deeply") from error
    except ValueError as error:  # also a number of more digits than Python reads
        raise InvalidScenario(f"not TOML: {error}") from error
    try:
        return _scenario(Table(table, ()))
    except WrongValue as wrong:
        raise InvalidScenario(wrong.told(text)) from wrong


def _scenario(table: Table) -> Scenario:
    tenants = table.tables("tenants", _tenant, MOST_TENANTS)
    hosts = table.named_tables("hosts", _host, MOST_HOSTS)
    scenario = Scenario(
        title=table.text("title", "A scenario"),
        slots=table.whole("slots", 1, MOST_SLOTS),
        horizon=table.number("horizon", 0.001, MOST_SECONDS),
        duration=table.one("duration", _duration),
        tenants=tuple(tenants),
        hosts=hosts,
        seed=table.whole("seed", 0, 2**63 - 1, 1),
    )
    table.nothing_else()
    _judge(scenario)
    return scenario


def _judge(scenario: Scenario) -> None:
    """What no value alone shows."""
    if not scenario.tenants:
        raise WrongValue(("tenants",), "there must be one at least")
    for index, tenant in enumerate(scenario.tenants):
        if tenant.name in [other.name for other in scenario.tenants[:index]]:
            raise WrongValue(("tenants", index, "name"), f"{tenant.name!r} is taken")
    for name in scenario.hosts:
        if not any(name in tenant.hosts for tenant in scenario.tenants):
            raise WrongValue(("hosts", name), "no tenant's hosts name it")
    jobs = scenario.expected_jobs()
    if jobs > MOST_JOBS:
        raise WrongValue(("tenants",), f"about {jobs:,.0f} jobs in all; at most {MOST_JOBS:,} are simulated")


def _tenant(table: Table) -> TenantPlan:
    evenly = table.choice("arrivals", {"random": False, "even": True}, False)
    plan = TenantPlan(
        name=table.text("name"),
        weight=table.whole("weight", 1, 1_000_000, 1),
        max_running=table.optional("max_running", lambda path, value: as_whole(path, value, 1, MOST_SLOTS)),
        priority=table.choice("priority", _PRIORITIES, Priority.NORMAL),
        flow=table.number("flow", 0.0, float(MOST_JOBS), 0.0),
        evenly=evenly,
        bursts=tuple(table.tables("bursts", _burst, MOST_ENTRIES)),
        hosts=tuple(table.items("hosts", as_name, MOST_ENTRIES)),
        duration=table.optional("duration", _duration),
    )
    table.nothing_else()
    return plan


def _burst(table: Table) -> Burst:
    burst = Burst(table.number("at", 0.0, MOST_SECONDS, 0.0), table.whole("jobs", 1, MOST_JOBS))
    table.nothing_else()
    return burst


def _host(table: Table) -> HostPlan:
    plan = HostPlan(
        rate=table.optional("rate", lambda path, value: as_number(path, value, 0.0001, 1_000_000.0)),
        burst=table.whole("burst", 1, MOST_JOBS, 1),
        concurrency=table.optional("concurrency", lambda path, value: as_whole(path, value, 1, MOST_SLOTS)),
        blocked=tuple(sorted(table.items("blocked", _span, MOST_ENTRIES))),
    )
    table.nothing_else()
    return plan


def _span(path: Keys, value: Value) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise WrongValue(path, f"must be [from, until], not {shown(value)}")
    since, until = (as_number((*path, index), each, 0.0, MOST_SECONDS) for index, each in enumerate(value))
    if since >= until:
        raise WrongValue(path, "ends before it begins")
    return since, until


def _duration(path: Keys, value: Value) -> Duration:
    """A number of seconds, or a table with `mean`, `distribution` and perhaps `spread`."""
    if not isinstance(value, dict):
        return Duration(as_number(path, value, 0.001, MOST_SECONDS))
    table = Table(value, path)
    distribution = table.choice("distribution", {name: name for name in _DISTRIBUTIONS}, "fixed")
    most = 1.0 if distribution == "uniform" else 3.0
    duration = Duration(table.number("mean", 0.001, MOST_SECONDS), distribution, table.number("spread", 0.0, most, 0.5))
    table.nothing_else()
    return duration

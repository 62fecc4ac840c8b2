"""A run as text for a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobs.simulator.figures import jain, tenant_figures
from jobs.simulator.record import Outcome
from jobs.simulator.scenario import Duration, HostPlan, Scenario, TenantPlan

HEAD = ("tenant", "submitted", "started", "done", "first start", "wait p50", "wait p95", "share")


def described(outcome: Outcome, order: str, priorities: str) -> str:
    """What ran, by which rules, and what came of it."""
    scenario = outcome.scenario
    blocks = [
        f"{scenario.title}: order {order}, priorities {priorities}",
        "\n".join(_settings(scenario)),
        _table(outcome),
        "\n".join(_judged(outcome)),
    ]
    return "\n\n".join(blocks)


def _settings(scenario: Scenario) -> Iterable[str]:
    yield (
        f"{scenario.slots:,} slots, {_length(scenario.duration)} a job, {scenario.horizon:,.15g} s simulated, "
        f"seed {scenario.seed}"
    )
    for tenant in scenario.tenants:
        yield f"  {tenant.name}: {', '.join(_plan(tenant))}"
    for name, host in scenario.hosts.items():
        yield f"  host {name}: {', '.join(_limits(host)) or 'no limits'}"


def _plan(tenant: TenantPlan) -> Iterable[str]:
    yield f"priority {tenant.priority.label}, weight {tenant.weight}"
    if tenant.max_running is not None:
        yield f"at most {tenant.max_running:,} running"
    for burst in tenant.bursts[:3]:
        yield f"{burst.jobs:,} jobs at {burst.at:,.15g} s"
    if len(tenant.bursts) > 3:
        yield f"{len(tenant.bursts) - 3:,} more bursts"
    if tenant.flow:
        yield f"{tenant.flow:,.6g} jobs/s {'evenly spaced' if tenant.evenly else 'at random moments'}"
    if tenant.duration is not None:
        yield f"{_length(tenant.duration)} a job"


def _limits(host: HostPlan) -> Iterable[str]:
    if host.rate is not None:
        yield f"{host.rate:,.6g} requests/s, burst {host.burst:,}"
    if host.concurrency is not None:
        yield f"{host.concurrency:,} at once"
    for since, until in host.blocked[:3]:
        yield f"blocked from {since:,.15g} to {until:,.15g} s"
    if len(host.blocked) > 3:
        yield f"{len(host.blocked) - 3:,} more blocks"


def _length(duration: Duration) -> str:
    text = f"{duration.mean:,.6g} s"
    return text if duration.distribution == "fixed" else f"{text} on average ({duration.distribution})"


def _table(outcome: Outcome) -> str:
    rows: list[tuple[str, ...]] = [HEAD]
    for figures, tally in zip(tenant_figures(outcome), outcome.tallies, strict=True):
        counts = (f"{count:,}" for count in (figures.submitted, figures.started, figures.done))
        times = map(_seconds, (tally.first_start, figures.wait_p50, figures.wait_p95))
        rows.append((figures.name, *counts, *times, f"{figures.share:.1%}"))
    return _lined(rows)


def _judged(outcome: Outcome) -> Iterable[str]:
    yield "Waits run until the start, or until the end for a job that never started."
    yield f"Jain's index: {jain(outcome):.3f} (1: each tenant that had work got its fair share by weight)."
    last = outcome.samples[-1]
    mean = sum(sum(sample.running) for sample in outcome.samples) / len(outcome.samples)
    yield f"Slots busy: {mean:,.1f} on average, {outcome.most_busy:,} at most."
    yield f"Jobs waiting: {outcome.most_waiting:,} at most, {sum(last.waiting):,} at the end."


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _lined(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )

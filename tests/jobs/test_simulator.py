"""The simulator shows what the orders are there for, and its own rules hold in any run."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.simulator.arrivals import arrivals
from jobs.simulator.figures import jain, max_min, percentile, tenant_figures
from jobs.simulator.orders import ORDERS, PRIORITIES
from jobs.simulator.reading import read, shipped_names
from jobs.simulator.record import SAMPLES, Outcome
from jobs.simulator.scenario import Burst, Duration, HostPlan, Scenario, TenantPlan
from jobs.states import Priority
from tests.jobs.simulations import by_name, of, run, starts

JOB_SECONDS = 4.0
NEIGHBOURS = ("shop", "analyst")


def test_in_a_shared_queue_neighbours_wait_until_the_burst_is_over() -> None:
    outcome = run("noisy_neighbour", "shared")
    figures = by_name(outcome)

    assert len([start for start in starts(outcome, "crawler") if start < 60.0]) >= 100
    assert all(not [start for start in starts(outcome, name) if start < 199.0] for name in NEIGHBOURS)
    assert all((figures[name].wait_p50 or 0.0) > 60.0 for name in NEIGHBOURS)
    assert jain(outcome) < 0.6


def test_in_the_fair_order_neighbours_start_within_two_job_times_and_the_crawler_has_the_rest() -> None:
    outcome = run("noisy_neighbour")
    figures = by_name(outcome)
    waits = [max(outcome.tallies[index].waits) for index in range(2)]

    assert max(waits) <= 2 * JOB_SECONDS
    assert figures["crawler"].share == pytest.approx(1.0 - sum(figures[name].share for name in NEIGHBOURS), abs=0.001)
    assert figures["crawler"].share > 0.5
    assert jain(outcome) >= 0.98


def test_weights_three_to_one_are_shares_three_to_one() -> None:
    outcome = run("weights")
    figures = by_name(outcome)

    assert figures["gold"].share / figures["basic"].share == pytest.approx(3.0, rel=0.05)
    assert jain(outcome) >= 0.98


def test_strict_priorities_starve_the_low_one() -> None:
    figures = by_name(run("priorities", priorities="strict"))

    assert figures["analyst"].started == 0
    assert figures["analyst"].wait_p50 == 240.0
    assert (figures["shop"].wait_p95 or 0.0) <= JOB_SECONDS


def test_weights_give_the_low_priority_about_one_job_in_ten() -> None:
    outcome = run("priorities")
    started = {name: figures.started for name, figures in by_name(outcome).items()}

    assert started["analyst"] / sum(started.values()) == pytest.approx(0.1, abs=0.03)
    assert started["shop"] > started["crawler"] > started["analyst"]


def test_three_full_priorities_start_six_three_and_one_in_ten() -> None:
    outcome = of("slots = 1\nduration = 1\nhorizon = 100\n" + "".join(
        f'[[tenants]]\nname = "{name}"\npriority = "{name}"\nbursts = [{{ jobs = 100 }}]\n'
        for name in ("high", "normal", "low")
    ))  # fmt: skip

    assert [figures.started for figures in tenant_figures(outcome)] == [60, 30, 10]


def test_a_blocked_host_delays_only_its_own_jobs() -> None:
    fair, shared = run("blocked_host"), run("blocked_host", "shared")

    assert max(fair.tallies[0].waits) <= JOB_SECONDS
    assert len([start for start in starts(fair, "crawler") if 24.0 <= start < 80.0]) >= 50
    assert not [run for run in shared.runs if 28.0 <= run.start < 80.0]


def test_a_tenant_never_runs_more_than_its_limit() -> None:
    text = """
        slots = 8
        duration = 4
        horizon = 100
        [[tenants]]
        name = "limited"
        max_running = 3
        bursts = [{ jobs = 200 }]
        [[tenants]]
        name = "free"
        bursts = [{ jobs = 200 }]
    """
    outcome = of(text)
    figures = by_name(outcome)

    assert max(sample.running[0] for sample in outcome.samples) == 3
    assert figures["free"].share == pytest.approx(5 / 8, abs=0.01)
    assert jain(outcome) >= 0.98


def test_the_pool_sized_for_the_peak_carries_it() -> None:
    outcome = run("peak")

    assert outcome.most_busy == pytest.approx(556, abs=1)
    assert outcome.most_waiting <= 1


def test_a_pool_sized_for_the_average_piles_up_what_the_requirements_say() -> None:
    assert run("peak_on_average_pool").most_waiting == pytest.approx(6_944, rel=0.005)


def test_a_host_is_called_no_more_often_than_it_bears() -> None:
    hosts = {"slow": HostPlan(rate=2.0, burst=3, concurrency=4, blocked=((30.0, 40.0),))}
    plan = TenantPlan("one", bursts=(Burst(0.0, 500),), hosts=("slow",), duration=Duration(1.5, "exponential"))
    outcome = run(Scenario("a host", 50, 100.0, Duration(1.0), (plan,), hosts))
    times = starts(outcome, "one")

    assert len(times) >= 120  # the host does not stand idle either
    assert not [at for at in times if 30.0 <= at < 40.0]
    assert max(sample.running[0] for sample in outcome.samples) <= 4
    assert all(
        later - first >= (count - 3) / 2.0 - 1e-9
        for index, first in enumerate(times)
        for count, later in enumerate(times[index:], start=1)
    )


@pytest.mark.parametrize("name", [name for name in shipped_names() if read(name).expected_jobs() < 5_000])
@pytest.mark.parametrize("order", ORDERS)
def test_the_same_scenario_gives_the_same_run(name: str, order: str) -> None:
    assert run(name, order) == run(name, order)


def test_another_seed_gives_other_jobs_and_another_tenant_leaves_them_as_they_are() -> None:
    shop = TenantPlan("shop", flow=1.0)
    alone = Scenario("s", 1, 100.0, Duration(1.0, "exponential"), (shop,), seed=1)
    among_others = Scenario("s", 1, 100.0, Duration(1.0, "exponential"), (TenantPlan("other", flow=5.0), shop), seed=1)
    reseeded = Scenario("s", 1, 100.0, Duration(1.0, "exponential"), (shop,), seed=2)

    def posted(scenario: Scenario) -> list[tuple[float, float]]:
        return [(j.submitted, j.seconds) for j in arrivals(scenario) if scenario.tenants[j.tenant] == shop]

    assert posted(alone) == posted(among_others) != posted(reseeded)


@pytest.mark.parametrize("distribution", ["uniform", "exponential", "lognormal"])
def test_running_times_have_the_mean_that_was_asked_for(distribution: str) -> None:
    plan = TenantPlan("one", bursts=(Burst(0.0, 20_000),), duration=Duration(4.0, distribution, 0.5))
    drawn = [job.seconds for job in arrivals(Scenario("s", 1, 10.0, Duration(1.0), (plan,)))]

    assert sum(drawn) / len(drawn) == pytest.approx(4.0, rel=0.05)
    assert len(set(drawn)) > 19_000


tenants = st.builds(
    TenantPlan,
    name=st.uuids().map(str),
    weight=st.integers(1, 9),
    max_running=st.none() | st.integers(1, 5),
    priority=st.sampled_from(Priority),
    flow=st.sampled_from([0.0, 0.3, 2.0]),
    bursts=st.lists(st.builds(Burst, st.floats(0.0, 50.0), st.integers(1, 30)), max_size=3).map(tuple),
    hosts=st.lists(st.sampled_from(["a", "b", "c"]), max_size=3).map(tuple),
    duration=st.none() | st.builds(Duration, st.floats(0.1, 20.0), st.sampled_from(["fixed", "exponential"])),
)
hosts = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.builds(
        HostPlan,
        rate=st.none() | st.floats(0.1, 5.0),
        burst=st.integers(1, 4),
        concurrency=st.none() | st.integers(1, 3),
        blocked=st.sampled_from([(), ((10.0, 20.0),), ((0.0, 5.0), (5.0, 30.0))]),
    ),
)
scenarios = st.builds(
    Scenario,
    title=st.just("any"),
    slots=st.integers(1, 12),
    horizon=st.floats(1.0, 60.0),
    duration=st.builds(Duration, st.floats(0.1, 10.0)),
    tenants=st.lists(tenants, min_size=1, max_size=4).map(tuple),
    hosts=hosts,
    seed=st.integers(0, 9),
)


@settings(max_examples=60, deadline=None)
@given(scenario=scenarios, order=st.sampled_from(ORDERS), priorities=st.sampled_from(PRIORITIES))
def test_in_any_run_slots_hold_one_job_and_jobs_start_once(scenario: Scenario, order: str, priorities: str) -> None:
    outcome = run(scenario, order, priorities)

    assert_slots_hold_one_job_at_a_time(outcome)
    assert len(outcome.samples) == SAMPLES
    for index, tally in enumerate(outcome.tallies):
        assert tally.submitted >= tally.started >= tally.done
        assert len(tally.waits) == tally.submitted
        assert min(tally.waits, default=0.0) >= 0.0
        assert sum(run.tenant == index for run in outcome.runs) == tally.started
    assert 0.0 < jain(outcome) <= 1.0
    assert sum(figures.share for figures in tenant_figures(outcome)) <= 1.001


@settings(max_examples=40, deadline=None)
@given(scenario=scenarios, priorities=st.sampled_from(PRIORITIES))
def test_no_slot_is_free_while_the_fair_order_has_a_job_that_may_run(scenario: Scenario, priorities: str) -> None:
    outcome = run(scenario, "fair", priorities)
    most = [plan.max_running or scenario.slots for plan in scenario.tenants]

    for sample in outcome.samples:
        if sum(sample.running) < scenario.slots:
            under = [running < limit for running, limit in zip(sample.running, most, strict=True)]
            assert not [n for n, may in zip(sample.runnable, under, strict=True) if may and n]


def assert_slots_hold_one_job_at_a_time(outcome: Outcome) -> None:
    slots = Counter(run.slot for run in outcome.runs)
    assert set(slots) <= set(range(outcome.scenario.slots))
    ordered = sorted(outcome.runs, key=lambda run: (run.slot, run.start))
    assert not [(a, b) for a, b in pairwise(ordered) if a.slot == b.slot and b.start < a.end]


@pytest.mark.parametrize(
    ("demands", "weights", "given"),
    [
        ([8, 8], [1, 1], [4, 4]),
        ([1, 8, 8], [1, 1, 1], [1, 3.5, 3.5]),
        ([8, 8], [3, 1], [6, 2]),
        ([2, 8, 8], [3, 1, 2], [2, 2, 4]),
        ([1, 2], [1, 1], [1, 2]),
        ([0, 9], [5, 1], [0, 8]),
    ],
)
def test_what_one_cannot_use_goes_to_the_others_by_weight(
    demands: list[float], weights: list[float], given: list[float]
) -> None:
    assert max_min(8.0, demands, weights) == pytest.approx(given)


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile([5.0, 1.0, 3.0, 2.0], part) for part in (0.5, 0.95)] == [2.0, 5.0]
    assert percentile([], 0.5) is None

"""How long a tenant's jobs take, and that equal tenants get equal slot time by it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pytest

from jobs.durations import FIRST_GUESS_SECONDS, Durations, Load
from jobs.fairness import FairOrder, Lane


def test_before_anything_ended_all_are_alike() -> None:
    assert Durations().expect("anybody") == FIRST_GUESS_SECONDS


def test_the_estimate_follows_the_jobs() -> None:
    durations, elapsed = Durations(), 0.0
    for second in range(200):  # one slot, jobs of 10 s, a look each second
        elapsed = second % 10
        durations.look({"t": Load(running=1, elapsed=elapsed)}, float(second))
        if elapsed == 9:
            durations.published("t")
    assert durations.expect("t") == pytest.approx(10, rel=0.1)
    assert durations.expect("newcomer") == pytest.approx(10, rel=0.1), "the mean of all"


def test_jobs_that_run_on_and_on_count_before_one_has_ended() -> None:
    durations = Durations()
    for second in range(60):
        durations.look({"t": Load(running=4, elapsed=4.0 * second)}, float(second))
    assert durations.expect("t") > 20


def test_a_clock_that_was_set_back_breaks_nothing() -> None:
    durations = Durations()
    for now in (100.0, 101.0, 50.0, 51.0):
        durations.look({"t": Load(running=1, elapsed=1.0)}, now)
    assert durations.expect("t") > 0


@dataclass(frozen=True)
class Page:
    tenant: Hashable
    number: int
    host: str = "a:80"


def slot_time(seconds: dict[Hashable, float], *, slots: int, until: float) -> dict[Hashable, float]:
    """What each tenant used, in the second half of the time, of a pool in which all have work all the time and which is
    looked at 20 times a second."""
    durations = Durations()
    order: FairOrder[Page] = FairOrder(expected=durations.expect)
    for tenant in seconds:
        order.feed(Lane(2, tenant), [Page(tenant, number) for number in range(5000)])
    running: list[tuple[Hashable, float]] = []
    used: dict[Hashable, float] = dict.fromkeys(seconds, 0.0)
    for tick in range(int(until * 20)):
        now = tick / 20
        running = [(tenant, start) for tenant, start in running if now < start + seconds[tenant]]
        loads: dict[Hashable, Load] = {}
        for tenant, start in running:
            load = loads.get(tenant, Load())
            loads[tenant] = Load(0, load.running + 1, load.elapsed + now - start)
        durations.look(loads, now)
        while len(running) < slots:
            job = order.pick()
            assert isinstance(job, Page)
            durations.published(job.tenant)
            running.append((job.tenant, now))
            if now >= until / 2:
                used[job.tenant] += seconds[job.tenant]
    return used


def test_jobs_of_ten_seconds_and_of_one_get_the_same_slot_time() -> None:
    used = slot_time({"slow": 10.0, "quick": 1.0}, slots=8, until=400.0)
    assert used["slow"] / used["quick"] == pytest.approx(1.0, abs=0.1)


def test_what_is_expected_of_one_job_does_not_add_up_all_tenants_again() -> None:
    class Loads(dict[Hashable, Load]):
        sums = 0

        def values(self) -> Any:
            self.sums += 1
            return super().values()

    durations, loads = Durations(), Loads(a=Load(running=1, elapsed=3.0))
    durations.look(loads, 0.0)
    looked = loads.sums
    assert durations.expect("b") == 3.0
    assert durations.mean() == 3.0
    assert loads.sums == looked

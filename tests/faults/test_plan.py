"""The plan of faults."""

from __future__ import annotations

from itertools import pairwise

from tests.faults.plan import Kind, make_plan

KINDS = list(Kind)


def test_the_same_seed_gives_the_same_plan_and_another_another() -> None:
    plan = make_plan(300.0, seed=7, kinds=KINDS, lease_seconds=4.0)
    assert plan == make_plan(300.0, seed=7, kinds=KINDS, lease_seconds=4.0)
    assert plan != make_plan(300.0, seed=8, kinds=KINDS, lease_seconds=4.0)


def test_five_minutes_hold_thirty_faults_and_every_kind_twice() -> None:
    for seed in range(20):
        plan = make_plan(300.0, seed=seed, kinds=KINDS, lease_seconds=4.0)
        assert len(plan) >= 30
        assert all(sum(fault.kind is kind for fault in plan) >= 2 for kind in KINDS)


def test_faults_come_one_after_the_other_and_a_stopped_worker_outlasts_its_lease() -> None:
    plan = make_plan(300.0, seed=1, kinds=KINDS, lease_seconds=4.0)
    assert all(one.begin + one.seconds < other.begin for one, other in pairwise(plan))
    assert plan[-1].begin + plan[-1].seconds <= 300.0
    assert all(fault.seconds > 4.0 for fault in plan if fault.kind is Kind.ZOMBIE)

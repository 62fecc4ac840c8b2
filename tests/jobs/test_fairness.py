"""Who is next, by decisions alone: shares at every prefix, nothing held back, nobody forgotten."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.fairness import PRIORITY_WEIGHTS, FairOrder, Hungry, Lane, Share, TenantQueue, WeightedRoundRobin

NORMAL = 2


@dataclass(frozen=True)
class Page:
    """A job of the tests."""

    tenant: Hashable
    number: int
    host: str = "a:80"
    priority: int = NORMAL


def pages(tenant: Hashable, count: int, *, host: str = "a:80", priority: int = NORMAL, start: int = 0) -> list[Page]:
    return [Page(tenant, start + number, host, priority) for number in range(count)]


def feed(order: FairOrder[Page], jobs: list[Page]) -> None:
    for job in jobs:
        order.feed(Lane(job.priority, job.tenant), [job])


def picked(order: FairOrder[Page], count: int) -> list[Page]:
    """Up to `count` jobs, everything being in memory."""
    found: list[Page] = []
    while len(found) < count:
        job = order.pick()
        if job is None:
            break
        assert isinstance(job, Page)
        found.append(job)
    return found


# priorities


def test_of_ten_turns_six_are_high_three_normal_and_one_low_and_they_are_mixed() -> None:
    robin = WeightedRoundRobin(PRIORITY_WEIGHTS)
    turns = [robin.next([1, 2, 3]) for _ in range(20)]
    assert turns == turns[:10] * 2
    assert Counter(turns[:10]) == {1: 6, 2: 3, 3: 1}
    assert "111" not in "".join(map(str, turns))


def test_the_share_of_an_empty_priority_goes_to_the_others() -> None:
    robin = WeightedRoundRobin(PRIORITY_WEIGHTS)
    assert Counter(robin.next([2, 3]) for _ in range(100)) == {2: 75, 3: 25}
    assert Counter(robin.next([3]) for _ in range(7)) == {3: 7}


@given(weights=st.dictionaries(st.integers(), st.integers(1, 20), min_size=1, max_size=6), turns=st.integers(1, 200))
def test_at_every_prefix_a_weighted_turn_is_near_its_ideal(weights: dict[int, int], turns: int) -> None:
    """Within one turn while up to three keys share; the bound grows with the logarithm of their number."""
    robin, counts, total = WeightedRoundRobin(weights), Counter[int](), sum(weights.values())
    slack = 1.0 if len(weights) <= 3 else 2.0
    for number in range(1, turns + 1):
        counts[robin.next(list(weights))] += 1
        for key, weight in weights.items():
            assert abs(counts[key] - number * weight / total) <= slack


@given(readiness=st.lists(st.sets(st.sampled_from([1, 2, 3]), min_size=1), min_size=1, max_size=300))
def test_whatever_is_ready_and_when_nobody_waits_for_more_than_twenty_of_its_turns(readiness: list[set[int]]) -> None:
    robin, waited = WeightedRoundRobin(PRIORITY_WEIGHTS), Counter[int]()
    for ready in readiness:
        turn = robin.next(ready)
        assert turn in ready
        waited.update(ready)
        waited[turn] = 0
        assert max(waited.values()) <= 20


def test_a_priority_that_is_ready_every_other_turn_is_served() -> None:
    robin = WeightedRoundRobin(PRIORITY_WEIGHTS)
    turns = [robin.next([1, 3] if number % 2 else [1]) for number in range(200)]
    assert turns.count(3) >= 10


# tenants


@given(counts=st.dictionaries(st.integers(), st.integers(1, 30), min_size=1, max_size=8))
def test_equal_tenants_are_within_one_job_of_each_other_while_both_have_work(counts: dict[int, int]) -> None:
    order = FairOrder[Page]()
    for tenant, count in counts.items():
        feed(order, pages(tenant, count))
    had = Counter[Hashable]()
    for job in picked(order, sum(counts.values())):
        had[job.tenant] += 1
        busy = [had[tenant] for tenant, count in counts.items() if had[tenant] < count]
        assert not busy or max(busy) - min(busy) <= 1
        assert all(had[tenant] == count or had[tenant] >= max(busy, default=0) - 1 for tenant, count in counts.items())
    assert had == counts, "nothing is held back and nothing comes twice"


weighted = st.dictionaries(
    st.integers(), st.tuples(st.integers(1, 9), st.sampled_from([0.5, 1.0, 4.0, 10.0])), min_size=2, max_size=6
)


@given(tenants=weighted, turns=st.integers(1, 300))
def test_slot_time_is_shared_by_weight_at_every_prefix(tenants: dict[int, tuple[int, float]], turns: int) -> None:
    """The bound of start-time fair queueing for any two that have work: one job of each, in time by weight."""
    order = FairOrder[Page](expected=lambda tenant: tenants[tenant][1])  # type: ignore[index]
    for tenant, (weight, _) in tenants.items():
        order.set_tenant(tenant, Share(weight))
        feed(order, pages(tenant, turns))
    used = dict.fromkeys(tenants, 0.0)
    largest = {tenant: seconds / weight for tenant, (weight, seconds) in tenants.items()}
    for job in picked(order, turns):
        used[job.tenant] += largest[job.tenant]  # type: ignore[index]
        for one in tenants:
            for other in tenants:
                assert abs(used[one] - used[other]) <= largest[one] + largest[other] + 1e-6


def test_weights_three_to_one_give_three_turns_to_one() -> None:
    order = FairOrder[Page]()
    order.set_tenant("large", Share(3))
    feed(order, pages("large", 100) + pages("small", 100))
    assert Counter(job.tenant for job in picked(order, 100)) == {"large": 75, "small": 25}


def test_a_weight_that_changes_counts_from_now_on() -> None:
    order = FairOrder[Page]()
    feed(order, pages("a", 100) + pages("b", 100))
    assert Counter(job.tenant for job in picked(order, 20)) == {"a": 10, "b": 10}
    order.set_tenants({"a": Share(4)})
    assert Counter(job.tenant for job in picked(order, 50)) == {"a": 40, "b": 10}


def test_a_tenant_that_wakes_has_its_share_at_once_and_no_credit() -> None:
    order = FairOrder[Page]()
    feed(order, pages("busy", 300) + pages("guest", 1))
    picked(order, 100)
    feed(order, pages("guest", 100, start=1))
    turns = [job.tenant for job in picked(order, 40)]
    assert "guest" in turns[:2], "its share at once"
    assert turns.count("guest") == 20, "and no more than that"


def test_an_idle_order_keeps_no_grudge() -> None:
    """Who worked alone before pays nothing for it later."""
    order = FairOrder[Page]()
    feed(order, pages("early", 100))
    picked(order, 100)
    feed(order, pages("early", 50, start=100) + pages("late", 50))
    assert abs(Counter(job.tenant for job in picked(order, 20))["early"] - 10) <= 1


def test_virtual_times_of_tenants_that_are_gone_are_forgotten() -> None:
    queue: TenantQueue[int] = TenantQueue()
    for tenant in range(20_000):
        queue.join(tenant)
        queue.charge(queue.peek(), 1.0)
        queue.leave(tenant)
    assert len(queue._tags) < 2_000
    assert len(queue._heap) < 3_000


@given(
    limits=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    steps=st.lists(st.integers(0, 9), max_size=120),
)
def test_a_tenant_never_has_more_in_flight_than_it_may_and_nobody_waits_for_it(
    limits: list[int], steps: list[int]
) -> None:
    order = FairOrder[Page]()
    for tenant, limit in enumerate(limits):
        order.set_tenant(tenant, Share(max_running=limit))
        for priority in PRIORITY_WEIGHTS:
            feed(order, pages(tenant, 200, priority=priority))
    running = Counter[Hashable]()
    for step in steps:
        if step < len(limits) and running[step]:
            running[step] -= 1
            order.ended(step)
            continue
        job = order.pick()
        if job is None:
            assert all(running[tenant] == limit for tenant, limit in enumerate(limits)), "a slot was left empty"
            continue
        assert isinstance(job, Page)
        running[job.tenant] += 1
        assert running[job.tenant] <= limits[int(str(job.tenant))]


def test_a_tenant_at_its_limit_gets_no_credit_for_the_wait() -> None:
    order = FairOrder[Page]()
    order.set_tenant("limited", Share(max_running=1))
    feed(order, pages("limited", 100) + pages("free", 200))
    picked(order, 100)
    order.set_tenant("limited", Share())
    assert Counter(job.tenant for job in picked(order, 20))["limited"] <= 11


def test_a_paused_tenant_is_passed_over_until_it_is_resumed() -> None:
    order = FairOrder[Page]()
    order.set_tenant("paused", Share(paused=True))
    feed(order, pages("paused", 3) + pages("other", 3))
    assert {job.tenant for job in picked(order, 10)} == {"other"}
    assert order.held_back("paused") == "tenant_paused"
    order.set_tenants({})
    assert len(picked(order, 10)) == 3


# hosts


def test_hosts_of_a_tenant_take_turns() -> None:
    order = FairOrder[Page]()
    feed(
        order, pages("t", 6, host="a:80") + pages("t", 2, host="b:80", start=10) + pages("t", 2, host="c:80", start=20)
    )
    assert "".join(job.host[0] for job in picked(order, 10)) == "abcabcaaaa"


def test_a_parked_host_delays_only_its_own_jobs() -> None:
    order = FairOrder[Page]()
    feed(order, pages("t", 2000, host="busy:80") + pages("t", 1, host="free:80", start=5000))
    order.park("busy:80")
    assert [job.host for job in picked(order, 10)] == ["free:80"]
    order.unpark("busy:80")
    assert [job.number for job in picked(order, 3)] == [0, 1, 2]


def test_jobs_fed_while_their_host_is_parked_wait_for_it() -> None:
    order = FairOrder[Page]()
    order.park("a:80")
    feed(order, pages("t", 1))
    assert order.pick() is None
    order.unpark("a:80")
    assert len(picked(order, 2)) == 1


def test_an_empty_lane_asks_to_be_fed_and_nothing_is_lost_by_asking() -> None:
    order = FairOrder[Page]()
    lane = Lane(NORMAL, "t")
    order.arm(lane)
    assert order.pick() == Hungry(lane) == order.pick()
    assert order.hungry(5) == [lane]
    order.feed(lane, pages("t", 2), more=True)
    assert len([order.pick(), order.pick()]) == 2
    assert order.pick() == Hungry(lane)
    order.feed(lane, [])
    assert order.pick() is None
    assert order.waiting() == []


def test_a_host_whose_jobs_were_not_read_is_asked_for_once_it_may_go() -> None:
    order = FairOrder[Page]()
    lane = Lane(NORMAL, "t")
    order.park("a:80")
    assert order.remember(lane, ["a:80"], most=5)
    assert order.pick() is None
    assert order.wants(lane) == []
    order.unpark("a:80")
    assert order.pick() == Hungry(lane)
    assert order.wants(lane) == ["a:80"]
    assert not order.remember(lane, ["b:80", "c:80"], most=1), "one of them was one too many"


def test_of_more_hosts_than_are_remembered_those_that_may_go_come_first() -> None:
    order = FairOrder[Page]()
    lane = Lane(NORMAL, "t")
    for host in ("a:80", "b:80", "c:80"):
        order.park(host)
    assert order.remember(lane, ["a:80", "b:80"], most=2)
    assert not order.remember(lane, ["free:80"], most=2), "one was forgotten"
    assert order.pick() == Hungry(lane)
    assert order.wants(lane) == ["free:80"]
    assert order.remember(lane, ["c:80"], most=2)
    assert not order.remember(lane, ["a:80", "free:80"], most=2)
    assert order.wants(lane) == ["free:80"]


def test_what_is_fed_twice_comes_once() -> None:
    order = FairOrder[Page]()
    feed(order, pages("t", 3) + pages("t", 3))
    assert len(picked(order, 10)) == 3


# the three together


class Model:
    """The same rules told the slow way: every job in one list, every decision by looking at all of them."""

    def __init__(self, jobs: list[Page], weights: dict[Hashable, int]) -> None:
        self.jobs = jobs
        self.weights = weights
        self.parked: set[str] = set()
        self.robin = WeightedRoundRobin(PRIORITY_WEIGHTS)
        self.tags: dict[tuple[int, Hashable], float] = {}
        self.floor: dict[int, float] = {}
        self.ready_before: set[tuple[int, Hashable]] = set()

    def candidates(self) -> list[Page]:
        return [job for job in self.jobs if job.host not in self.parked]

    def settle(self) -> None:
        ready = {(job.priority, job.tenant) for job in self.candidates()}
        for lane in ready - self.ready_before:
            self.tags[lane] = max(self.tags.get(lane, 0.0), self.floor.get(lane[0], 0.0))
        self.ready_before = ready

    def pick(self, like: Page | None) -> bool:
        """Whether `like` is a job that the rules allow to be next; it is then taken."""
        ready = {(job.priority, job.tenant) for job in self.candidates()}
        if not ready or like is None:
            return not ready and like is None
        priority = self.robin.next({one for one, _ in ready})
        least = min(self.tags[lane] for lane in ready if lane[0] == priority)
        lane = (like.priority, like.tenant)
        allowed = lane[0] == priority and self.tags[lane] == pytest.approx(least) and like in self.candidates()
        self.floor[priority] = max(self.floor.get(priority, 0.0), self.tags[lane])
        self.tags[lane] += 1 / self.weights[like.tenant]
        self.jobs.remove(like)
        return allowed


@settings(deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(1, 3), st.sampled_from("xyz"), st.sampled_from("abc")), max_size=60),
    weights=st.fixed_dictionaries({name: st.integers(1, 4) for name in "xyz"}),
    steps=st.lists(st.sampled_from(["pick", "pick", "pick", "a", "b", "c"]), max_size=120),
)
def test_the_order_obeys_its_rules_whatever_parks_and_when(
    jobs: list[tuple[int, str, str]], weights: dict[Hashable, int], steps: list[str]
) -> None:
    rows = [Page(tenant, number, host, priority) for number, (priority, tenant, host) in enumerate(jobs)]
    order, model = FairOrder[Page](), Model(list(rows), weights)
    order.set_tenants({tenant: Share(weight) for tenant, weight in weights.items()})
    feed(order, rows)
    model.settle()
    for step in steps:
        if step != "pick":
            change = order.unpark if step in model.parked else order.park
            change(step)
            model.parked ^= {step}
        else:
            job = order.pick()
            assert not isinstance(job, Hungry)
            assert model.pick(job)
        model.settle()


@given(seed=st.integers(0, 2**32 - 1))
def test_the_same_history_gives_the_same_order(seed: int) -> None:
    def history() -> list[Page]:
        chance, order, found = random.Random(seed), FairOrder[Page](), list[Page]()
        for number in range(100):
            host = chance.choice(["a:80", "b:80", "c:80"])
            feed(order, [Page(chance.randrange(5), number, host, chance.randint(1, 3))])
            chance.choice([order.park, order.unpark])(host)
            found += picked(order, chance.randrange(2))
        return found

    assert history() == history()

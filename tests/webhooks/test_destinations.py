"""Who may be tried now."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhooks.destinations import (
    BREAK_AFTER,
    DESTINATION_TRIES,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_BROKEN_TRIES,
    MAX_TRIES,
    TENANT_TRIES,
    Destinations,
    Due,
)


def due(destination: str, number: int = 1, tenant: str = "") -> list[Due]:
    return [Due(f"{destination}-{index}", destination, tenant or f"tenant of {destination}") for index in range(number)]


def begin(destinations: Destinations, wanted: list[Due], *, now: float = 0.0) -> list[Due]:
    chosen = destinations.choose(wanted, now=now)
    for one in chosen:
        destinations.enter(one)
    return chosen


def fail(destinations: Destinations, destination: str, times: int, *, now: float = 0.0) -> None:
    for one in due(destination, times):
        destinations.enter(one)
        destinations.leave(one, well=False, now=now)


def test_a_destination_has_few_tries_at_once_and_leaves_room_for_others() -> None:
    destinations = Destinations()
    chosen = begin(destinations, due("a", 100) + due("b", 2))
    assert [one.destination for one in chosen] == ["a"] * DESTINATION_TRIES + ["b"] * 2
    assert destinations.shut(now=0.0) == ["a"]


def test_a_tenant_has_a_bound_over_all_its_destinations() -> None:
    wanted = [one for destination in range(50) for one in due(str(destination), 4, "noisy")] + due("quiet")
    chosen = begin(Destinations(), wanted)
    assert sum(one.tenant == "noisy" for one in chosen) == TENANT_TRIES
    assert chosen[-1].destination == "quiet"


def test_a_process_has_a_bound_over_everything() -> None:
    destinations = Destinations()
    assert len(begin(destinations, [one for destination in range(500) for one in due(str(destination))])) == MAX_TRIES
    assert destinations.is_full()
    assert destinations.choose(due("another"), now=0.0) == []


def test_a_destination_that_fails_again_and_again_gets_one_try_at_a_time_and_pauses_that_grow() -> None:
    destinations = Destinations()
    fail(destinations, "a", BREAK_AFTER - 1)
    assert len(destinations.choose(due("a", 5), now=0.0)) == 5
    fail(destinations, "a", 1)
    assert destinations.choose(due("a", 5), now=FIRST_PAUSE - 0.01) == []
    (probe,) = begin(destinations, due("a", 5), now=FIRST_PAUSE)
    assert destinations.choose(due("a", 5), now=FIRST_PAUSE) == []
    destinations.leave(probe, well=False, now=FIRST_PAUSE)
    assert destinations.choose(due("a"), now=3 * FIRST_PAUSE - 0.01) == []
    assert len(destinations.choose(due("a"), now=3 * FIRST_PAUSE)) == 1
    fail(destinations, "a", 20, now=100.0)
    assert len(destinations.choose(due("a"), now=100.0 + LONGEST_PAUSE)) == 1


def test_one_success_mends_a_destination() -> None:
    destinations = Destinations()
    fail(destinations, "a", BREAK_AFTER)
    (probe,) = begin(destinations, due("a", 5), now=FIRST_PAUSE)
    destinations.leave(probe, well=True, now=FIRST_PAUSE)
    assert len(destinations.choose(due("a", 5), now=FIRST_PAUSE)) == 5


def test_what_says_nothing_of_the_receiver_breaks_no_destination() -> None:
    destinations = Destinations()
    for one in due("a", 100):
        destinations.enter(one)
        destinations.leave(one, well=None, now=0.0)
    assert len(destinations.choose(due("a", 5), now=0.0)) == 5


def test_broken_destinations_together_leave_half_of_the_process_to_the_others() -> None:
    destinations = Destinations()
    for number in range(300):
        fail(destinations, f"dead {number}", BREAK_AFTER)
    dead = [one for number in range(300) for one in due(f"dead {number}")]
    alive = [one for number in range(300) for one in due(f"alive {number}")]
    assert len(begin(destinations, dead, now=1.0)) == MAX_BROKEN_TRIES
    assert len(begin(destinations, alive, now=1.0)) == MAX_TRIES - MAX_BROKEN_TRIES


def test_a_destination_that_was_not_tried_for_long_is_forgotten() -> None:
    destinations = Destinations()
    fail(destinations, "a", BREAK_AFTER)
    destinations.shut(now=10_000.0)
    assert len(destinations.choose(due("a", 5), now=10_000.0)) == 5


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([True, False, None])), max_size=200), st.data())
def test_the_bounds_hold_and_nothing_is_left_behind(steps: list[tuple[str, bool | None]], data: st.DataObject) -> None:
    destinations = Destinations()
    under_way: list[Due] = []
    for now, (destination, well) in enumerate(steps):
        under_way += begin(destinations, due(destination, data.draw(st.integers(0, 20))), now=float(now))
        assert (
            max((sum(one.destination == name for one in under_way) for name in "abcdef"), default=0)
            <= DESTINATION_TRIES
        )
        assert destinations.under_way == len(under_way)
        if under_way:
            destinations.leave(under_way.pop(data.draw(st.integers(0, len(under_way) - 1))), well=well, now=float(now))
    for one in under_way:
        destinations.leave(one, well=True, now=1e6)
    assert destinations.under_way == 0
    assert len(destinations.choose([one for destination in "abcdef" for one in due(destination, 1)], now=1e6)) == 6

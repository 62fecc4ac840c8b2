"""Who may be tried now."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhooks.lanes import (
    BREAK_AFTER,
    FIRST_PAUSE,
    LANE_TRIES,
    LONGEST_PAUSE,
    MAX_BROKEN_TRIES,
    MAX_TRIES,
    TENANT_TRIES,
    Due,
    Lanes,
)


def due(lane: str, number: int = 1, tenant: str = "") -> list[Due]:
    return [Due(f"{lane}-{index}", lane, tenant or f"tenant of {lane}") for index in range(number)]


def begin(lanes: Lanes, wanted: list[Due], *, now: float = 0.0) -> list[Due]:
    chosen = lanes.choose(wanted, now=now)
    for one in chosen:
        lanes.enter(one)
    return chosen


def fail(lanes: Lanes, lane: str, times: int, *, now: float = 0.0) -> None:
    for one in due(lane, times):
        lanes.enter(one)
        lanes.leave(one, well=False, now=now)


def test_a_lane_has_few_tries_at_once_and_leaves_room_for_others() -> None:
    lanes = Lanes()
    chosen = begin(lanes, due("a", 100) + due("b", 2))
    assert [one.lane for one in chosen] == ["a"] * LANE_TRIES + ["b"] * 2
    assert lanes.shut(now=0.0) == ["a"]


def test_a_tenant_has_a_bound_over_all_its_lanes() -> None:
    wanted = [one for lane in range(50) for one in due(str(lane), 4, "noisy")] + due("quiet")
    chosen = begin(Lanes(), wanted)
    assert sum(one.tenant == "noisy" for one in chosen) == TENANT_TRIES
    assert chosen[-1].lane == "quiet"


def test_a_process_has_a_bound_over_everything() -> None:
    lanes = Lanes()
    assert len(begin(lanes, [one for lane in range(500) for one in due(str(lane))])) == MAX_TRIES
    assert lanes.is_full()
    assert lanes.choose(due("another"), now=0.0) == []


def test_a_lane_that_fails_again_and_again_gets_one_try_at_a_time_and_pauses_that_grow() -> None:
    lanes = Lanes()
    fail(lanes, "a", BREAK_AFTER - 1)
    assert len(lanes.choose(due("a", 5), now=0.0)) == 5
    fail(lanes, "a", 1)
    assert lanes.choose(due("a", 5), now=FIRST_PAUSE - 0.01) == []
    (probe,) = begin(lanes, due("a", 5), now=FIRST_PAUSE)
    assert lanes.choose(due("a", 5), now=FIRST_PAUSE) == []
    lanes.leave(probe, well=False, now=FIRST_PAUSE)
    assert lanes.choose(due("a"), now=3 * FIRST_PAUSE - 0.01) == []
    assert len(lanes.choose(due("a"), now=3 * FIRST_PAUSE)) == 1
    fail(lanes, "a", 20, now=100.0)
    assert len(lanes.choose(due("a"), now=100.0 + LONGEST_PAUSE)) == 1


def test_one_success_mends_a_lane() -> None:
    lanes = Lanes()
    fail(lanes, "a", BREAK_AFTER)
    (probe,) = begin(lanes, due("a", 5), now=FIRST_PAUSE)
    lanes.leave(probe, well=True, now=FIRST_PAUSE)
    assert len(lanes.choose(due("a", 5), now=FIRST_PAUSE)) == 5


def test_what_says_nothing_of_the_receiver_breaks_no_lane() -> None:
    lanes = Lanes()
    for one in due("a", 100):
        lanes.enter(one)
        lanes.leave(one, well=None, now=0.0)
    assert len(lanes.choose(due("a", 5), now=0.0)) == 5


def test_broken_lanes_together_leave_half_of_the_process_to_the_others() -> None:
    lanes = Lanes()
    for number in range(300):
        fail(lanes, f"dead {number}", BREAK_AFTER)
    dead = [one for number in range(300) for one in due(f"dead {number}")]
    alive = [one for number in range(300) for one in due(f"alive {number}")]
    assert len(begin(lanes, dead, now=1.0)) == MAX_BROKEN_TRIES
    assert len(begin(lanes, alive, now=1.0)) == MAX_TRIES - MAX_BROKEN_TRIES


def test_a_lane_that_was_not_tried_for_long_is_forgotten() -> None:
    lanes = Lanes()
    fail(lanes, "a", BREAK_AFTER)
    lanes.shut(now=10_000.0)
    assert len(lanes.choose(due("a", 5), now=10_000.0)) == 5


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([True, False, None])), max_size=200), st.data())
def test_the_bounds_hold_and_nothing_is_left_behind(steps: list[tuple[str, bool | None]], data: st.DataObject) -> None:
    lanes = Lanes()
    under_way: list[Due] = []
    for now, (lane, well) in enumerate(steps):
        under_way += begin(lanes, due(lane, data.draw(st.integers(0, 20))), now=float(now))
        assert max((sum(one.lane == name for one in under_way) for name in "abcdef"), default=0) <= LANE_TRIES
        assert lanes.under_way == len(under_way)
        if under_way:
            lanes.leave(under_way.pop(data.draw(st.integers(0, len(under_way) - 1))), well=well, now=float(now))
    for one in under_way:
        lanes.leave(one, well=True, now=1e6)
    assert lanes.under_way == 0
    assert len(lanes.choose([one for lane in "abcdef" for one in due(lane, 1)], now=1e6)) == 6

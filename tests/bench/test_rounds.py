"""A cost is really measured: more work costs more, and work is counted."""

from __future__ import annotations

import asyncio
import hashlib
import statistics

from bench.rounds import at_once, median_costs


def burn(amount: int) -> None:
    for _ in range(amount):
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2000)


def test_double_work_costs_about_double() -> None:
    costs = median_costs({"once": burn, "twice": lambda count: burn(2 * count)}, rounds=5, count=30, what="burns")
    assert 1.5 < costs["twice"] / costs["once"] < 2.6


def test_the_cost_is_per_unit_of_work() -> None:
    costs = [median_costs({"": burn}, rounds=3, count=count, what="burns")[""] for count in (20, 60)]
    assert 0.6 < costs[0] / costs[1] < 1.7


def test_waiting_costs_nothing() -> None:
    with asyncio.Runner() as runner:
        wait = at_once(runner, lambda: asyncio.sleep(0.05), 5)
        assert median_costs({"": wait}, rounds=1, count=5, what="waits")[""] < 10  # ms CPU; each takes 50 ms


def test_all_calls_are_made_and_so_many_at_once() -> None:
    running, seen = 0, list[int]()

    async def call() -> None:
        nonlocal running
        running += 1
        seen.append(running)
        await asyncio.sleep(0)
        running -= 1

    with asyncio.Runner() as runner:
        at_once(runner, call, 4)(10)
    assert (len(seen), max(seen)) == (10, 4)
    assert statistics.median(seen) >= 3

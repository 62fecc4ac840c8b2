"""Ways to do the same work, in rounds that alternate, so that a busy moment of the machine hits all of them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import repeat

from bench.console import Progress

Way = Callable[[int], None]
WARM_UP = 10


def median_costs(ways: Mapping[str, Way], *, rounds: int, count: int, what: str) -> dict[str, float]:
    """CPU of this process per unit of work in milliseconds, for each way to do `count` units; medians of the rounds."""
    seen: dict[str, list[float]] = {name: [] for name in ways}
    progress = Progress(f"rounds, {what}", rounds)
    for way in ways.values():
        way(min(count, WARM_UP))  # connections, caches and threads are there when the clock starts
    for number in range(rounds):
        for name, way in ways.items():
            started = time.process_time()
            way(count)
            seen[name].append((time.process_time() - started) / count * 1000)
            progress.show(number)
    return {name: statistics.median(values) for name, values in seen.items()}


def at_once(runner: asyncio.Runner, call: Callable[[], Awaitable[None]], many: int) -> Way:
    """A way that makes `count` calls on the runner's loop, `many` of them under way at any time."""

    async def all_of(count: int) -> None:
        left = repeat(None, count)

        async def some() -> None:
            for _ in left:
                await call()

        await asyncio.gather(*(some() for _ in range(min(many, count))))

    return lambda count: runner.run(all_of(count))

"""Which robots.txt are kept: for how long, how many, and read by one for all who wait."""

import asyncio
from collections.abc import Callable

import pytest

from scraper.robots import RobotsFile
from scraper.robots_cache import (
    FRESH_SECONDS,
    KEPT_SECONDS,
    MAX_CHARACTERS,
    MAX_FILES,
    STALE_SECONDS,
    Reading,
    RobotsCache,
)

UNREAD = Reading(unread=("http_503", "", None))


class Desk:
    """A cache with a clock that the test moves, and a count of what was read."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cache = RobotsCache(lambda: self.now)
        self.reads = 0

    async def look(self, key: str = "a", reading: Reading | None = None) -> Reading:
        async def read() -> Reading:
            self.reads += 1
            await asyncio.sleep(0.01)
            return reading or Reading(RobotsFile(b"x" * 100))

        return await self.cache.reading(key, read)


def at_desk(test: Callable[[Desk], object]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test(Desk()))  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


@at_desk
async def test_a_file_is_read_again_when_it_is_no_longer_fresh(desk: Desk) -> None:
    first = await desk.look()
    desk.now += FRESH_SECONDS - 1
    assert await desk.look() is first
    desk.now += 2
    assert await desk.look() is not first
    assert desk.reads == 2


@at_desk
async def test_fifty_at_once_read_once(desk: Desk) -> None:
    readings = await asyncio.gather(*(desk.look() for _ in range(50)))
    assert desk.reads == 1
    assert len(set(map(id, readings))) == 1


@at_desk
async def test_those_who_wait_share_a_failure_and_the_next_try_looks_anew(desk: Desk) -> None:
    readings = await asyncio.gather(*(desk.look(reading=UNREAD) for _ in range(20)))
    assert (desk.reads, set(map(id, readings))) == (1, {id(UNREAD)})
    assert (await desk.look()).file is not None
    assert desk.reads == 2


@at_desk
async def test_an_older_file_is_used_while_it_cannot_be_read_again_but_for_a_day_only(desk: Desk) -> None:
    known = await desk.look()
    desk.now += FRESH_SECONDS
    assert await desk.look(reading=UNREAD) is known
    assert await desk.look(reading=UNREAD) is known
    assert desk.reads == 2  # not each time
    desk.now += STALE_SECONDS
    assert await desk.look(reading=UNREAD) is known
    desk.now += KEPT_SECONDS - FRESH_SECONDS - STALE_SECONDS
    assert await desk.look(reading=UNREAD) is UNREAD


@at_desk
async def test_who_waited_takes_over_when_the_reader_is_stopped(desk: Desk) -> None:
    tasks = [asyncio.create_task(desk.look()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, True, False]
    assert desk.reads == 2


@at_desk
async def test_an_error_of_the_reader_is_the_readers_alone(desk: Desk) -> None:
    async def fail() -> Reading:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    broken = asyncio.create_task(desk.cache.reading("a", fail))
    await asyncio.sleep(0)
    assert (await desk.look()).file is not None
    with pytest.raises(ZeroDivisionError):
        await broken


@at_desk
async def test_it_grows_by_number_and_by_size_to_a_bound(desk: Desk) -> None:
    for number in range(MAX_FILES + 50):
        await desk.cache.reading(number, _nothing)
    assert len(desk.cache._entries) == MAX_FILES
    await desk.look("used")
    for number in range(40):
        await desk.look(f"big {number}", Reading(RobotsFile(b"#" * (MAX_CHARACTERS // 10))))
        await desk.look("used")
    assert desk.cache._characters <= MAX_CHARACTERS
    assert desk.cache._characters == sum(entry.reading.characters for entry in desk.cache._entries.values())
    assert "used" in desk.cache._entries
    assert desk.cache._flights == {}


async def _nothing() -> Reading:
    return Reading()

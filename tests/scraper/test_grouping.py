"""Grouping of writes: one at a time, together under load, each caller its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from scraper.grouping import Grouper


def test_an_idle_grouper_writes_at_once_and_a_busy_one_in_groups() -> None:
    groups: list[list[int]] = []

    async def write(items: Sequence[int]) -> list[int]:
        groups.append(list(items))
        await asyncio.sleep(0.01)
        return [item * 10 for item in items]

    async def main() -> list[int]:
        grouper: Grouper[int, int] = Grouper(write, at_most=4)
        first = asyncio.create_task(grouper.submit(0))
        await asyncio.sleep(0.005)
        rest = [asyncio.create_task(grouper.submit(number)) for number in range(1, 8)]
        return [await task for task in (first, *rest)]

    assert asyncio.run(main()) == [0, 10, 20, 30, 40, 50, 60, 70]
    assert groups == [[0], [1, 2, 3, 4], [5, 6, 7]]


def test_a_group_that_fails_fails_its_own_callers_alone() -> None:
    async def write(items: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        if 1 in items:
            raise ValueError("no")
        return list(items)

    async def main() -> int:
        grouper: Grouper[int, int] = Grouper(write, at_most=1)
        bad, good = asyncio.create_task(grouper.submit(1)), asyncio.create_task(grouper.submit(2))
        with pytest.raises(ValueError, match="no"):
            await bad
        return await good

    assert asyncio.run(main()) == 2


def test_a_caller_that_left_does_not_break_its_group() -> None:
    async def write(items: Sequence[int]) -> list[int]:
        await asyncio.sleep(0.01)
        return list(items)

    async def main() -> int:
        grouper: Grouper[int, int] = Grouper(write)
        blocker = asyncio.create_task(grouper.submit(0))
        await asyncio.sleep(0)
        leaver, stayer = asyncio.create_task(grouper.submit(1)), asyncio.create_task(grouper.submit(2))
        await asyncio.sleep(0)
        leaver.cancel()
        await blocker
        return await stayer

    assert asyncio.run(main()) == 2

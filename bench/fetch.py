"""CPU of one fetch of 20 KB in the worker's process: the Fetcher beside the clients it could have been made of.

httpx2 and the httpcore2 beneath it are the project's packages; aiohttp, httpx and httpx-aiohttp are measured where they
are installed.

The Fetcher does more than the others: it checks the address, hashes the body and keeps a record. Like it, the clients
named "new connections" keep none.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore2
import httpx2

from bench.catalogue import BenchFailed
from bench.children import Children
from bench.figures import Figure
from bench.rounds import at_once, median_costs
from bench.target import LOOPBACK
from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchRequest

SIZE = 20_480
AT_ONCE = (1, 20, 100)
POOL = 20
CLOSE = {"Connection": "close"}
FETCHER = "Fetcher"
FETCHER_BAR = 0.9  # ms
JUDGED = "20 at once"

Call = Callable[[], Awaitable[None]]


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """Medians of the rounds, and what each other way costs beside the Fetcher."""
    with Children(folder) as children, asyncio.Runner() as runner:
        url = f"http://{children.target()}/bytes/{SIZE}"
        costs: dict[str, dict[str, float]] = {}
        for many in AT_ONCE:
            stack = AsyncExitStack()
            calls = runner.run(_open_all(stack, url, many))
            ways = {name: at_once(runner, call, many) for name, call in calls.items()}
            suffix = f"{many} at once"
            costs[suffix] = median_costs(ways, rounds=sizes["rounds"], count=sizes["fetches"], what=suffix)
            runner.run(stack.aclose())
    return _figures(costs)


def _figures(costs: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    absolute, ratios = [], []
    for suffix, by_way in costs.items():
        for name, cost in by_way.items():
            bar = FETCHER_BAR if (name, suffix) == (FETCHER, JUDGED) else None
            absolute.append(Figure(f"{name}, {suffix}", cost, "ms CPU", bar=bar))
            if name != FETCHER:
                ratios.append(Figure(f"{name} beside the Fetcher, {suffix}", cost / by_way[FETCHER], "times"))
    return [*absolute, *ratios]


async def _open_all(stack: AsyncExitStack, url: str, many: int) -> dict[str, Call]:
    ways = {
        FETCHER: _fetcher(url, many),
        "httpcore2, new connections": _httpcore2(url, many, headers=CLOSE),
        "httpcore2, kept connections": _httpcore2(url, many),
        "httpx2, new connections": _client(httpx2, url, many, headers=CLOSE),
        "httpx2, kept connections": _client(httpx2, url, many),
    }
    if many > POOL:
        ways[f"httpx2, pool of {POOL}"] = _client(httpx2, url, POOL)
    if importlib.util.find_spec("httpx"):
        httpx = importlib.import_module("httpx")
        ways["httpx, new connections"] = _client(httpx, url, many, headers=CLOSE)
        ways["httpx, kept connections"] = _client(httpx, url, many)
        if importlib.util.find_spec("httpx_aiohttp"):
            ways["httpx over aiohttp, new connections"] = _client(httpx, url, many, headers=CLOSE, over_aiohttp=True)
            ways["httpx over aiohttp, kept connections"] = _client(httpx, url, many, over_aiohttp=True)
    if importlib.util.find_spec("aiohttp"):
        ways["aiohttp, new connections"] = _aiohttp(url, many, headers=CLOSE)
        ways["aiohttp, kept connections"] = _aiohttp(url, many)
    return {name: await stack.enter_async_context(way) for name, way in ways.items()}


@asynccontextmanager
async def _fetcher(url: str, many: int) -> AsyncIterator[Call]:
    fetcher = Fetcher(egress=EgressGuard([f"{LOOPBACK}/32"]), user_agent="bench", max_connections=many)
    request = FetchRequest(url, "GET", (), b"", deadline_seconds=30, max_bytes=10 * SIZE, follow_redirects=True)

    async def call() -> None:
        outcome = await fetcher.fetch(request)
        _check(outcome.body.size if outcome.body is not None else outcome.error_code)
        if outcome.body is not None:
            outcome.body.close()

    yield call
    await fetcher.aclose()


@asynccontextmanager
async def _httpcore2(url: str, pool: int, headers: Mapping[str, str] | None = None) -> AsyncIterator[Call]:
    async with httpcore2.AsyncConnectionPool(max_connections=pool, max_keepalive_connections=pool) as client:

        async def call() -> None:
            _check(len((await client.request("GET", url, headers=list((headers or {}).items()))).content))

        yield call


@asynccontextmanager
async def _client(
    module: Any, url: str, pool: int, headers: Mapping[str, str] | None = None, *, over_aiohttp: bool = False
) -> AsyncIterator[Call]:
    """httpx2's client, or that of httpx, whose API is the same."""
    logging.getLogger(module.__name__).setLevel(logging.WARNING)  # a line per request is not what it costs
    limits = module.Limits(max_connections=pool, max_keepalive_connections=pool)
    options: dict[str, Any] = {"limits": limits, "timeout": 30, "headers": headers, "trust_env": False}
    if over_aiohttp:
        options["transport"] = importlib.import_module("httpx_aiohttp").AiohttpTransport(limits=limits)
    async with module.AsyncClient(**options) as client:

        async def call() -> None:
            _check(len((await client.get(url)).content))

        yield call


@asynccontextmanager
async def _aiohttp(url: str, pool: int, headers: Mapping[str, str] | None = None) -> AsyncIterator[Call]:
    aiohttp: Any = importlib.import_module("aiohttp")  # not one of the project's packages
    connector = aiohttp.TCPConnector(limit=pool)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def call() -> None:
            async with session.get(url) as answer:
                _check(len(await answer.read()))

        yield call


def _check(got: int | str | None) -> None:
    if got != SIZE:
        raise BenchFailed(f"A fetch brought {got} in place of {SIZE} bytes.")

"""CPU of the client per put of 20 KB."""

from __future__ import annotations

import asyncio
import io
import itertools
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from django.conf import settings

from bench.bucket import client, delete_prefix
from bench.figures import Figure
from bench.rounds import Way, at_once, median_costs
from results.storage import UPLOAD_THREADS, ResultStore

BODY = bytes(range(256)) * 80  # 20 KB
AT_ONCE = 20


@dataclass(slots=True)
class BodyInMemory:
    """As the fetcher hands a small body over."""

    file: IO[bytes] = field(default_factory=lambda: io.BytesIO(BODY))
    size: int = len(BODY)


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """Medians of the rounds, and what boto3 costs beside obstore."""
    prefix = f"bench/{uuid.uuid4()}/"
    store = ResultStore()
    try:
        with asyncio.Runner() as runner:
            put = _putter(store, prefix)
            ways = {
                "obstore, one at a time": at_once(runner, put, 1),
                "boto3, one at a time": _by_boto3(prefix, 1),
                f"obstore, {AT_ONCE} at once": at_once(runner, put, AT_ONCE),
                f"boto3, {UPLOAD_THREADS} threads": _by_boto3(prefix, UPLOAD_THREADS),
            }
            costs = median_costs(ways, rounds=sizes["rounds"], count=sizes["puts"], what="uploads")
    finally:
        store.close()
        delete_prefix(prefix)
    one_obstore, one_boto3, many_obstore, many_boto3 = costs.values()
    return [
        *(Figure(name, cost, "ms CPU") for name, cost in costs.items()),
        Figure("boto3 beside obstore, one at a time", one_boto3 / one_obstore, "times"),
        Figure("boto3 beside obstore, many at once", many_boto3 / many_obstore, "times"),
    ]


def _putter(store: ResultStore, prefix: str) -> Callable[[], Awaitable[None]]:
    numbers = itertools.count()
    return lambda: store.upload(f"{prefix}{next(numbers)}", BodyInMemory())


def _by_boto3(prefix: str, threads: int) -> Way:
    s3 = client()

    def put(number: int) -> None:
        s3.put_object(Bucket=settings.S3_BUCKET, Key=f"{prefix}{number}", Body=BODY)

    def way(count: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(put, range(count)))

    return way

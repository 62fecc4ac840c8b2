"""Several processes against one host, judged by the target's own log."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.models import HostPolicy, HostState
from tests.integration.roles import database_url
from tests.scraper.limit_target import Answer, LimitTarget, excess, most_at_once
from tests.scraper.limit_visitor import COMMAND, PREFIX
from tests.scraper.limiters import OwnRedis, age_epoch, own_redis

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis(tmp_path) as server:
        yield server


def visitors(server: OwnRedis, target: LimitTarget, *, count: int, seconds: float, callers: int = 4) -> list[Any]:
    command = [*COMMAND, server.url, target.host, str(seconds), str(callers)]
    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "settings"}
    return [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]


def counted(processes: list[Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        for name, number in json.loads(output).items():
            total[name] = total.get(name, 0) + number
    return total


def test_the_targets_log_shows_no_more_than_burst_and_rate_in_any_window_nor_more_connections(
    server: OwnRedis,
) -> None:
    rate, burst, concurrency = 10.0, 4, 2
    with LimitTarget(hold=0.05) as target:
        HostPolicy.objects.create(host=target.host, rate=rate, burst=burst, concurrency=concurrency)
        processes = visitors(server, target, count=3, seconds=9.0)
        age_epoch(server.url, PREFIX)
        counts = counted(processes)
    times = target.times
    assert excess(times, rate=rate, burst=burst) <= 0
    assert most_at_once(target.log) <= concurrency
    assert counts["granted"] == len(times)
    assert counts["host_rate"] > 0
    assert len(times) >= 0.7 * rate * (times[-1] - times[0])  # it gives what it may


@pytest.mark.parametrize("loss", ["flush", "restart"])
def test_retry_after_keeps_every_process_away_though_redis_forgets(server: OwnRedis, loss: str) -> None:
    answered: list[float] = []

    def refuse_once(path: str) -> Answer:
        if not answered:
            answered.append(time.monotonic())
            return 429, {"Retry-After": "4"}
        return 200, {}

    with LimitTarget(answer=refuse_once) as target:
        HostPolicy.objects.create(host=target.host, rate=50.0, burst=1, concurrency=1)
        processes = visitors(server, target, count=2, seconds=10.0)
        until(lambda: HostState.objects.filter(host=target.host, blocked_by="http_429").exists(), "the block")
        if loss == "flush":
            server.flush()
        else:
            server.stop()
            server.start(empty=True)
        counted(processes)
    after = [moment - answered[0] for moment in target.times if moment > answered[0]]
    assert [moment for moment in after if moment < 4.0] == []
    assert after, "and then they come back"


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)

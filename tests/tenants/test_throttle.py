"""The submit throttle: one rate for all processes, by the real Redis, and without it."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.conf import settings
from redis import Redis

from tenants import throttle
from tenants.throttle import PATIENCE_SECONDS, Throttle

NOWHERE = "redis://127.0.0.1:1/0"


def processes(count: int) -> list[Throttle]:
    """As many processes see the buckets: each with connections and a memory of its own."""
    return [Throttle(settings.REDIS_URL) for _ in range(count)]


def test_whoever_waits_as_told_is_let_through() -> None:
    tenant, mine = uuid.uuid4(), Throttle(settings.REDIS_URL)
    assert mine.take(tenant, 3, 4) == 0.0
    wait = mine.take(tenant, 3, 1)
    assert wait <= 2 / 3
    time.sleep(wait + 0.01)
    assert wait == 0 or mine.take(tenant, 3, 1) == 0.0


def test_processes_share_one_rate() -> None:
    tenant, rate, started = uuid.uuid4(), 20, time.monotonic()
    seen = processes(4)
    with ThreadPoolExecutor(8) as pool:
        waits = list(pool.map(lambda index: seen[index % 4].take(tenant, rate, 1), range(200)))
    passed = waits.count(0.0)
    assert rate <= passed <= rate + rate * (time.monotonic() - started)


def test_tenants_do_not_share_a_rate() -> None:
    mine = Throttle(settings.REDIS_URL)
    assert [mine.take(uuid.uuid4(), 1, 1) for _ in range(5)] == [0.0] * 5


def test_what_is_refused_takes_nothing() -> None:
    tenant, mine = uuid.uuid4(), Throttle(settings.REDIS_URL)
    mine.take(tenant, 10, 1000)
    before = mine.take(tenant, 10, 1)
    assert mine.take(tenant, 10, 500) > 0
    assert 0 < mine.take(tenant, 10, 1) <= before


def test_a_rate_is_changed_without_a_restart() -> None:
    tenant, mine = uuid.uuid4(), Throttle(settings.REDIS_URL)
    assert mine.take(tenant, 1, 100) == 0.0
    assert mine.take(tenant, 1, 1) > 90
    assert mine.take(tenant, 1000, 1) < 1


def test_what_is_left_is_told_without_asking_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant, mine = uuid.uuid4(), Throttle(settings.REDIS_URL, clock=lambda: 1000.0)
    mine.take(tenant, 5, 1)
    monkeypatch.setattr(mine, "_take", None)
    told = mine.quota(tenant, 5)
    assert (told.limit, told.left, told.reset) == (5, 4, 1)
    assert mine.quota(uuid.uuid4(), 5).left == 5


def test_a_bucket_does_not_stay_in_redis_for_ever() -> None:
    tenant = uuid.uuid4()
    Throttle(settings.REDIS_URL).take(tenant, 5, 1)
    with Redis.from_url(settings.REDIS_URL) as link:
        assert 0 < link.pttl(f"submit:{tenant}") <= 2000


def test_without_redis_a_process_counts_by_itself() -> None:
    tenant, mine = uuid.uuid4(), Throttle(NOWHERE, clock=lambda: 1000.0)
    assert [mine.take(tenant, 3, 1) for _ in range(3)] == [0.0] * 3
    assert mine.take(tenant, 3, 1) == pytest.approx(1 / 3)


@contextmanager
def hanging_redis() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that takes every connection and never says a word; shows those it took."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"redis://127.0.0.1:{port}/0", taken
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    for link in taken:
        link.close()


def test_a_redis_that_hangs_is_asked_once_in_a_while_and_delays_nobody_else() -> None:
    with hanging_redis() as (url, taken):
        mine, began = Throttle(url), time.monotonic()
        assert all(mine.take(uuid.uuid4(), 5, 1) == 0.0 for _ in range(200))
        took = time.monotonic() - began
    looks = 1 + took / throttle.PAUSE_SECONDS
    assert len(taken) <= looks + 1
    assert took < 200 * PATIENCE_SECONDS / 2


def test_it_goes_back_to_the_shared_bucket_once_redis_answers() -> None:
    tenant, moment = uuid.uuid4(), [0.0]
    mine = Throttle(settings.REDIS_URL, clock=lambda: moment[0])
    mine._note_silence(OSError("away"))
    mine.take(tenant, 5, 5)
    assert Throttle(settings.REDIS_URL).take(tenant, 5, 300) == 0.0  # nobody told Redis
    moment[0] = throttle.PAUSE_SECONDS
    assert mine.take(tenant, 5, 1) > 30


def test_a_process_remembers_a_bounded_number_of_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "KEPT_TENANTS", 3)
    mine = Throttle(NOWHERE)
    for _ in range(10):
        mine.take(uuid.uuid4(), 1, 1)
    assert len(mine._levels) == 3

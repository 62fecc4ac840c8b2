"""The limiter with a real Redis and PostgreSQL: rate, burst, connections, blocks, pace, and what an outage does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from jobs import hosts
from jobs.models import HostPolicy, HostState
from jobs.notices import dedicated_connection
from scraper.gates import NotNow
from scraper.politeness import Denial, Grant, Limiter, Verdict
from tests.scraper.limiters import OwnRedis, limiter_on, own_redis, run, until

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "busy.example:443"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    with own_redis(tmp_path_factory.mktemp("limiter")) as server:
        yield server


@pytest.fixture(autouse=True)
def fresh(server: OwnRedis) -> None:
    server.flush()


@pytest.fixture(autouse=True)
def limits(db: None) -> None:
    HostPolicy.objects.create(host=HOST, rate=5.0, burst=5, concurrency=100)


def policy(**changes: Any) -> None:
    HostPolicy.objects.filter(host=HOST).update(**changes)


def grants_in(answers: list[Grant | Denial]) -> list[Grant]:
    return [answer for answer in answers if isinstance(answer, Grant)]


async def grants(limiter: Limiter, count: int) -> list[Grant]:
    return grants_in(await limiter.acquire([HOST] * count))


def release(limiter: Limiter, grant: Grant, verdict: Verdict = Verdict.SERVED, *, seconds: float = 0.0) -> None:
    limiter.release(grant.host, grant.member, verdict, seconds=seconds)


async def quiet(limiter: Limiter) -> None:
    """All that was to be told is told."""
    await until(lambda: not limiter._work, "everything is told")


def test_a_full_bucket_gives_its_burst_and_tells_the_others_when_to_come(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            answers = await limiter.acquire([HOST] * 8)
            denied = [answer for answer in answers if isinstance(answer, Denial)]
            assert len(grants_in(answers)) == 5
            assert [denial.reason for denial in denied] == ["host_rate"] * 3
            waits = [denial.seconds for denial in denied]
            assert waits[1] - waits[0] == pytest.approx(0.2, abs=0.001)
            assert waits[2] - waits[1] == pytest.approx(0.2, abs=0.001)

    run(test)


def test_two_processes_and_two_hosts_share_nothing_but_the_same_host(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as first, limiter_on(server.url) as second:
            mixed = await first.acquire([HOST, "other.example:80"] * 3)
            assert len(grants_in(mixed)) == 6
            assert len(await grants(second, 5)) == 2

    run(test)


def test_no_more_connections_than_allowed_and_one_that_is_let_go_is_free(server: OwnRedis) -> None:
    policy(concurrency=2, burst=50)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            held = await grants(limiter, 4)
            assert len(held) == 2
            release(limiter, held[0])
            await quiet(limiter)
            assert len(await grants(limiter, 2)) == 1

    run(test)


def test_a_grant_that_was_not_used_gives_its_token_back(server: OwnRedis) -> None:
    policy(rate=0.01)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            held = await grants(limiter, 5)
            for grant in held[:2]:
                release(limiter, grant, Verdict.UNUSED)
                release(limiter, grant, Verdict.UNUSED)  # once is all
            await quiet(limiter)
            assert len(await grants(limiter, 5)) == 2

    run(test)


def test_connections_of_a_process_that_died_return(server: OwnRedis) -> None:
    policy(concurrency=2, burst=50)

    async def test() -> None:
        async with limiter_on(server.url) as living, limiter_on(server.url) as dead:
            assert len(await grants(dead, 2)) == 2
            for chore in dead._chores:
                chore.cancel()
            assert await grants(living, 1) == []
            with server.client() as client:  # as 15 s later
                (key,) = client.keys("test:*:held:*")
                for member in client.zrange(key, 0, -1):
                    client.zadd(key, {member: 0})
            assert len(await grants(living, 3)) == 2
            await asyncio.sleep(1.2)  # those of the living are renewed
            with server.client() as client:
                assert client.zcard(key) == 2
                times = [score for _, score in client.zrange(key, 0, -1, withscores=True)]
                began = float(client.hget("test:epoch", "began") or 0)
            assert min(times) > time.time() - began + 13.5

    run(test)


def test_a_block_holds_for_every_process_and_is_written_down(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as first, limiter_on(server.url) as second:
            await first.block(HOST, 60.0, by="http_429")
            await first.block(HOST, 1.0, by="http_503")
            for limiter in (first, second):
                (denial,) = await limiter.acquire([HOST])
                assert isinstance(denial, Denial)
                assert denial.reason == "host_blocked"
                assert 55 < denial.seconds <= 60

    run(test)
    assert HostState.objects.get(host=HOST).blocked_by == "http_429"


@pytest.mark.parametrize("loss", ["flush", "restart with all it held", "restart empty"])
def test_nothing_is_forgotten_when_redis_loses_its_memory(server: OwnRedis, loss: str) -> None:
    """No fresh burst, the connections still count, the block holds."""
    policy(concurrency=7, rate=2.0, burst=6)

    async def test() -> None:
        async with limiter_on(server.url) as limiter, limiter_on(server.url) as other:
            assert len(await grants(limiter, 6)) == 6
            await limiter.block("blocked.example:80", 60.0, by="http_429")
            lost_at = time.monotonic()
            if loss == "flush":
                await asyncio.to_thread(server.flush)
            else:
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start, empty=loss == "restart empty")
                lost_at = time.monotonic()
            denial, *rest = await other.acquire(["blocked.example:80", *[HOST] * 10])
            assert time.monotonic() - lost_at > 1.4
            assert isinstance(denial, Denial)
            assert denial.reason == "host_blocked"
            assert denial.seconds > 45
            # Tokens for six may have come in by now, but only one connection is free.
            assert len(grants_in(rest)) <= 1

    run(test)


def test_a_new_memory_gives_no_fresh_burst(server: OwnRedis) -> None:
    policy(rate=1.0)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            for grant in await grants(limiter, 5):
                release(limiter, grant)
            lost_at = time.monotonic()
            server.flush()
            count = len(await grants(limiter, 5))
            assert count <= time.monotonic() - lost_at + 0.1

    run(test)


def test_a_block_that_is_being_written_down_while_redis_is_flushed_holds(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as limiter, limiter_on(server.url) as other:
            link = await asyncio.to_thread(dedicated_connection)
            link.execute("BEGIN")
            link.execute("LOCK TABLE jobs_hoststate IN SHARE MODE")  # reads go on, writes wait
            block = asyncio.create_task(limiter.block(HOST, 60.0, by="http_429"))
            await asyncio.sleep(0.3)
            server.flush()
            other._opened.clear()
            await until(other._opened.is_set, "open again")
            link.close()
            await block
            (denial,) = await other.acquire([HOST])
            assert isinstance(denial, Denial)
            assert denial.reason == "host_blocked"

    run(test)


def test_a_pace_outlives_redis(server: OwnRedis) -> None:
    hosts.record_pace(HOST, 0.25)
    policy(rate=0.4, burst=1)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            assert len(await grants(limiter, 2)) == 1
            (denial,) = await limiter.acquire([HOST])
            assert denial.seconds > 9 if isinstance(denial, Denial) else False

    run(test)


def test_while_redis_is_away_who_asks_waits_and_is_then_answered(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            await asyncio.to_thread(server.stop)
            try:
                asking = asyncio.create_task(limiter.acquire([HOST]))
                started = time.process_time()
                await asyncio.sleep(1.5)
                assert not asking.done()
                assert time.process_time() - started < 0.5  # it does not spin
            finally:
                await asyncio.to_thread(server.start)
            assert len(grants_in(await asking)) == 1

    run(test)


def test_a_pause_and_other_changes_hold_within_two_seconds(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            assert len(await grants(limiter, 1)) == 1
            await asyncio.to_thread(_in_thread, paused=True)
            await asyncio.sleep(2.0)
            (denial,) = await limiter.acquire([HOST])
            assert isinstance(denial, Denial)
            assert denial.reason == "host_paused"
            await asyncio.to_thread(_in_thread, paused=False)
            await asyncio.sleep(2.0)
            assert len(await grants(limiter, 1)) == 1

    run(test)


def _in_thread(**changes: Any) -> None:
    policy(**changes)
    connection.close()


# --- pace -------------------------------------------------------------------------------------------------------------


async def answers(limiter: Limiter, *verdicts: Verdict, seconds: float = 0.0) -> None:
    for verdict in verdicts:
        (grant,) = await grants(limiter, 1)
        release(limiter, grant, verdict, seconds=seconds)
        await quiet(limiter)


def pace() -> float:
    state = HostState.objects.filter(host=HOST).first()
    return 1.0 if state is None else state.pace


OVERLOADED, SERVED = Verdict.OVERLOADED, Verdict.SERVED


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((OVERLOADED,), 1.0),
        ((OVERLOADED, SERVED, OVERLOADED), 1.0),
        ((OVERLOADED, OVERLOADED), 0.5),
        ((OVERLOADED, Verdict.NONE, OVERLOADED), 0.5),
        ((OVERLOADED,) * 6, 0.5),  # within a second they tell of the same overload
    ],
)
def test_two_overloads_in_a_row_halve_the_rate(
    server: OwnRedis, verdicts: tuple[Verdict, ...], expected: float
) -> None:
    policy(burst=50, rate=1000.0)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            await answers(limiter, *verdicts)

    run(test)
    assert pace() == expected


def test_answers_to_what_was_sent_before_the_slowing_do_not_slow_again_or_mend(server: OwnRedis) -> None:
    policy(burst=50, rate=1000.0)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            await answers(limiter, OVERLOADED, OVERLOADED)
            await asyncio.sleep(1.1)
            await answers(limiter, OVERLOADED, OVERLOADED, OVERLOADED, SERVED, seconds=30.0)

    run(test)
    assert pace() == 0.5


def test_a_host_that_stays_overloaded_is_slowed_down_to_a_sixteenth_and_comes_back_step_by_step(
    server: OwnRedis,
) -> None:
    policy(burst=50, rate=1000.0)
    hosts.record_pace(HOST, 1 / 8)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            for _ in range(2):
                await answers(limiter, OVERLOADED, OVERLOADED)
                await asyncio.sleep(1.05)
            assert await asyncio.to_thread(_pace_in_thread) == 1 / 16
            await answers(limiter, SERVED, SERVED, SERVED)
            assert await asyncio.to_thread(_pace_in_thread) == 3 / 32  # one step a second, however many succeed
            await asyncio.sleep(1.05)
            await answers(limiter, SERVED)

    run(test)
    assert pace() == 4 / 32


def _pace_in_thread() -> float:
    try:
        return pace()
    finally:
        connection.close()


def test_a_host_that_is_not_adaptive_keeps_its_rate_and_loses_a_pace_it_had(server: OwnRedis) -> None:
    hosts.record_pace(HOST, 0.5)
    policy(burst=50, rate=1000.0, adaptive=False)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            await answers(limiter, OVERLOADED, OVERLOADED, OVERLOADED)

    run(test)
    assert pace() == 1.0


# --- waiting for leave, in the middle of an attempt -------------------------------------------------------------------


def test_who_may_wait_is_given_its_token_in_time_and_before_newcomers(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            await grants(limiter, 5)
            asked = time.monotonic()
            waiting = [asyncio.create_task(limiter.enter(HOST, limiter.new_member(), within=5.0)) for _ in range(3)]
            await asyncio.sleep(0.05)
            (denial,) = await limiter.acquire([HOST])
            assert isinstance(denial, Denial)
            assert denial.seconds > 0.6
            await asyncio.gather(*waiting)
            assert 0.6 < time.monotonic() - asked < 3

    run(test)


def test_who_cannot_wait_so_long_is_told_at_once_and_takes_nothing(server: OwnRedis) -> None:
    policy(rate=0.1)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            held = await grants(limiter, 5)
            with pytest.raises(NotNow) as refusal:
                await limiter.enter(HOST, limiter.new_member(), within=3.0)
            assert refusal.value.reason == "host_rate"
            assert 5 < refusal.value.seconds <= 13
            release(limiter, held[0], Verdict.UNUSED)
            await quiet(limiter)
            assert len(await grants(limiter, 3)) == 1
            await limiter.block("other.example:80", 60.0, by="http_503")
            with pytest.raises(NotNow) as refusal:
                await limiter.enter("other.example:80", limiter.new_member(), within=3.0)
            assert refusal.value.reason == "host_blocked"

    run(test)


def test_a_refused_connection_is_not_kept_as_held(server: OwnRedis) -> None:
    policy(concurrency=1, burst=50)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            (held,) = await grants(limiter, 1)
            with pytest.raises(NotNow):
                await limiter.enter(HOST, limiter.new_member(), within=0.1)
            await asyncio.sleep(0.7)  # a keep
            release(limiter, held)
            await quiet(limiter)
            assert len(await grants(limiter, 1)) == 1

    run(test)


def test_a_second_request_over_the_same_connection_needs_a_token_only(server: OwnRedis) -> None:
    policy(concurrency=1, burst=2, rate=2.0)

    async def test() -> None:
        async with limiter_on(server.url) as limiter:
            (held,) = await grants(limiter, 1)
            await limiter.enter(HOST, held.member, within=0.0)
            asked = time.monotonic()
            await limiter.enter(HOST, held.member, within=5.0)
            assert time.monotonic() - asked > 0.3

    run(test)


def test_a_token_that_was_promised_is_not_good_for_a_host_that_asked_for_peace_meanwhile(server: OwnRedis) -> None:
    async def test() -> None:
        async with limiter_on(server.url) as limiter, limiter_on(server.url) as other:
            await grants(limiter, 5)
            waiting = asyncio.create_task(limiter.enter(HOST, limiter.new_member(), within=2.0))
            await asyncio.sleep(0.05)
            await other.block(HOST, 60.0, by="http_429")
            with pytest.raises(NotNow) as refusal:
                await waiting
            assert refusal.value.reason == "host_blocked"

    run(test)

"""Which hosts may go, by the publisher's own reckoning."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.hosts import ActiveState, HostLimits, Policies
from jobs.pacing import Hold, Pacing

NOW = 1_790_000_000.0


def pacing(**overrides: HostLimits) -> Pacing:
    return Pacing(Policies(HostLimits(rate=5, burst=3, concurrency=10), overrides))


def sent_within(seconds: float, one: Pacing, host: str = "a") -> int:
    """How many requests go when each is sent as soon as it may; all end at once."""
    now, count = NOW, 0
    while now < NOW + seconds:
        one.look({}, now)
        if host in one.held:
            wake = one.next_wake()
            assert wake is not None
            assert wake > now
            now = wake
            continue
        one.sent(host, now)
        count += 1
    return count


def test_a_host_gets_its_burst_and_then_its_rate() -> None:
    assert sent_within(10, pacing()) == 3 + 5 * 10 - 1


def test_a_slowed_host_gets_a_part_of_its_rate() -> None:
    one = pacing()
    one.learn(Policies(HostLimits(rate=5, burst=3, concurrency=10)), {"a": ActiveState(None, "", 0.5)}, NOW)
    assert sent_within(10, one) == pytest.approx(3 + 2.5 * 10, abs=1)


def test_a_rest_fills_the_bucket_no_further_than_the_burst() -> None:
    one = pacing()
    for _ in range(3):
        one.sent("a", NOW)
    assert one.held["a"].until == pytest.approx(NOW + 0.2)
    one.look({}, NOW + 3600)
    for _ in range(3):
        assert "a" not in one.held
        one.sent("a", NOW + 3600)
    assert "a" in one.held


def test_a_host_at_its_connections_waits_for_an_end_and_not_for_a_time() -> None:
    one = pacing(a=HostLimits(rate=100, burst=100, concurrency=2))
    one.look({"a": 2}, NOW)
    assert one.held["a"] == Hold("host_rate", None)
    assert one.next_wake() is None
    one.look({"a": 1}, NOW)
    assert "a" not in one.held
    one.sent("a", NOW)
    assert "a" in one.held


def test_a_blocked_host_may_go_when_its_time_has_come() -> None:
    one = pacing()
    until = datetime.fromtimestamp(NOW + 3, UTC)
    one.learn(Policies(HostLimits(5, 3, 10)), {"a": ActiveState(until, "http_429", 1.0)}, NOW)
    assert one.held["a"] == Hold("host_blocked", NOW + 3)
    assert one.next_wake() == NOW + 3
    one.look({}, NOW + 2.9)
    assert "a" in one.held
    one.look({}, NOW + 3)
    assert "a" not in one.held


def test_a_paused_host_waits_for_a_person() -> None:
    one = pacing()
    one.learn(Policies(HostLimits(5, 3, 10), {"a": HostLimits(5, 3, 10, paused=True)}), {}, NOW)
    assert one.held["a"] == Hold("host_paused", None)
    one.look({}, NOW + 1e6)
    assert "a" in one.held
    one.learn(Policies(HostLimits(5, 3, 10)), {}, NOW)
    assert not one.held


def test_hosts_that_have_rested_are_forgotten() -> None:
    one = pacing()
    for number in range(10_000):
        one.sent(f"host{number}", NOW + number)
    one.look({}, NOW + 20_000)
    assert len(one._due) < 5_000

"""What is kept of each host: limits that operators set, blocks and paces that the host itself brought about."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from jobs import hosts, sweeper
from jobs.hosts import HostLimits
from jobs.models import CrawlDelay, HostPolicy, HostState

pytestmark = pytest.mark.django_db

BUSY = "busy.example:443"


def test_a_host_without_a_policy_has_the_limits_of_the_settings(settings: Any) -> None:
    settings.DEFAULT_HOST_RATE, settings.DEFAULT_HOST_BURST, settings.DEFAULT_HOST_CONCURRENCY = 3.0, 7, 2
    assert hosts.load_policies().limits_of(BUSY) == HostLimits(3.0, 7, 2, adaptive=True, paused=False)


def test_a_policy_overrides_what_it_names_and_leaves_the_rest(settings: Any) -> None:
    settings.DEFAULT_HOST_RATE, settings.DEFAULT_HOST_BURST, settings.DEFAULT_HOST_CONCURRENCY = 3.0, 7, 2
    HostPolicy.objects.create(host=BUSY, rate=0.5, adaptive=False, paused=True)
    policies = hosts.load_policies()
    assert policies.limits_of(BUSY) == HostLimits(0.5, 7, 2, adaptive=False, paused=True)
    assert policies.limits_of("other.example:443") == policies.default


@pytest.mark.parametrize("change", ["insert", "update", "delete", "update without its time", "swap"])
def test_the_fingerprint_changes_with_every_change(change: str) -> None:
    HostPolicy.objects.create(host="first.example:80")
    HostPolicy.objects.create(host=BUSY, rate=1.0)
    before = hosts.policies_fingerprint()
    assert hosts.policies_fingerprint() == before == hosts.load_policies().fingerprint
    with _own_transaction_number():
        if change in ("insert", "swap"):
            HostPolicy.objects.create(host="third.example:80")
        if change in ("delete", "swap"):
            HostPolicy.objects.filter(host=BUSY).delete()
        if change == "update":
            HostPolicy.objects.filter(host=BUSY).update(rate=2.0, changed_at=timezone.now())
        if change == "update without its time":
            HostPolicy.objects.filter(host=BUSY).update(rate=2.0)
    assert hosts.policies_fingerprint() != before


def _own_transaction_number() -> Any:
    """A savepoint writes under a number of its own, as another process's transaction would."""
    return transaction.atomic()


def test_a_block_is_never_shortened() -> None:
    hosts.block(BUSY, 100.0, by="http_503")
    until = HostState.objects.get(host=BUSY).blocked_until
    hosts.block(BUSY, 5.0, by="http_429")
    state = HostState.objects.get(host=BUSY)
    assert (state.blocked_until, state.blocked_by) == (until, "http_503")
    hosts.block(BUSY, 200.0, by="http_429")
    state.refresh_from_db()
    assert state.blocked_by == "http_429"
    assert until is not None
    assert state.blocked_until is not None
    assert state.blocked_until - until > timedelta(seconds=90)


def test_a_block_lasts_a_day_at_most() -> None:
    hosts.block(BUSY, 1e9, by="http_429")
    until = HostState.objects.get(host=BUSY).blocked_until
    assert until is not None
    assert until < timezone.now() + timedelta(days=1, minutes=1)


def test_block_and_pace_leave_each_other_alone() -> None:
    hosts.record_pace(BUSY, 0.5)
    hosts.block(BUSY, 60.0, by="http_429")
    hosts.record_pace(BUSY, 0.25)
    state = hosts.active_states()[BUSY]
    assert state.blocked_until is not None
    assert (state.blocked_by, state.pace) == ("http_429", 0.25)
    assert 50 < state.blocked_seconds <= 60


def test_a_pace_keeps_within_its_bounds() -> None:
    hosts.record_pace(BUSY, 0.0001)
    hosts.record_pace("other.example:80", 7.0)
    assert hosts.active_states()[BUSY].pace == hosts.SLOWEST_PACE
    assert "other.example:80" not in hosts.active_states()


def test_a_block_that_ran_out_is_not_active() -> None:
    past = timezone.now() - timedelta(seconds=1)
    HostState.objects.create(host=BUSY, blocked_until=past, blocked_by="http_429", pace=0.5)
    HostState.objects.create(host="other.example:80", blocked_until=past, blocked_by="http_429")
    states = hosts.active_states()
    assert states.keys() == {BUSY}
    assert states[BUSY].blocked_until is None


def test_the_sweeper_drops_states_that_say_nothing_any_more() -> None:
    past, future = timezone.now() - timedelta(seconds=1), timezone.now() + timedelta(minutes=1)
    HostState.objects.create(host="over.example:80", blocked_until=past)
    HostState.objects.create(host="never.example:80")
    HostState.objects.create(host="slow.example:80", blocked_until=past, pace=0.5)
    HostState.objects.create(host="blocked.example:80", blocked_until=future)
    HostState.objects.create(host="old.example:80", pace=0.5, changed_at=past - timedelta(days=1))
    assert sweeper.sweep().hosts_forgotten == 3
    assert set(HostState.objects.values_list("host", flat=True)) == {"slow.example:80", "blocked.example:80"}


def test_a_crawl_delay_lowers_the_rate_and_no_burst_goes_around_it(settings: Any) -> None:
    settings.DEFAULT_HOST_RATE, settings.DEFAULT_HOST_BURST, settings.DEFAULT_HOST_CONCURRENCY = 3.0, 7, 2
    hosts.record_crawl_delay(BUSY, 10.0)
    assert hosts.load_policies().limits_of(BUSY) == HostLimits(0.1, 1, 2)
    hosts.record_crawl_delay(BUSY, 0.01)  # faster than we would go anyway
    assert hosts.load_policies().limits_of(BUSY).rate == 3.0
    hosts.record_crawl_delay(BUSY, 0.0)
    assert hosts.load_policies().limits_of(BUSY) == hosts.default_limits()
    assert not CrawlDelay.objects.exists()


def test_an_operators_rate_stands_above_a_crawl_delay(settings: Any) -> None:
    hosts.record_crawl_delay(BUSY, 10.0)
    HostPolicy.objects.create(host=BUSY, rate=2.0)
    assert hosts.load_policies().limits_of(BUSY) == hosts.limits_in(HostPolicy(rate=2.0), hosts.default_limits())
    HostPolicy.objects.update(rate=None, concurrency=1)
    limits = hosts.load_policies().limits_of(BUSY)
    assert (limits.rate, limits.burst, limits.concurrency) == (0.1, 1, 1)


def test_the_fingerprint_changes_with_a_crawl_delay_but_not_with_reading_it_again() -> None:
    seen = [hosts.policies_fingerprint()]
    for seconds in (5.0, 6.0, 0.0):
        hosts.record_crawl_delay(BUSY, seconds)
        seen.append(hosts.policies_fingerprint())
        hosts.record_crawl_delay(BUSY, seconds)
        assert hosts.policies_fingerprint() == seen[-1]
    assert len(set(seen)) == 3
    assert seen[0] == seen[-1]


def test_a_crawl_delay_that_nobody_has_read_for_a_day_is_forgotten() -> None:
    hosts.record_crawl_delay(BUSY, 5.0)
    hosts.record_crawl_delay("old.example:80", 5.0)
    CrawlDelay.objects.filter(host="old.example:80").update(read_at=timezone.now() - timedelta(hours=25))
    assert sweeper.sweep().hosts_forgotten == 1
    assert list(CrawlDelay.objects.values_list("host", flat=True)) == [BUSY]

"""The fair order over real rows: what is chosen, what is stepped over, and that nothing stays behind."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from jobs import backlog, dispatch_report, hosts, publisher, transitions
from jobs.backlog import Request, Walk
from jobs.dispatcher import Dispatcher, window
from jobs.durations import FIRST_GUESS_SECONDS
from jobs.fairness import Lane
from jobs.messages import Message
from jobs.models import DispatchReport, HostPolicy, Job
from jobs.states import Priority, State
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db
OPEN = {"rate": 100_000, "burst": 100_000, "concurrency": 100_000}


@pytest.fixture(autouse=True)
def roomy(settings: Any) -> None:
    """Neither the window nor the hosts' usual limits decide, unless a test says so."""
    settings.PUBLISH_WINDOW = 100_000
    settings.DEFAULT_HOST_RATE, settings.DEFAULT_HOST_BURST, settings.DEFAULT_HOST_CONCURRENCY = OPEN.values()


_COLUMNS = ", ".join(str(one.column) for one in Job._meta.concrete_fields if one.column not in ("id", "eligible_at"))
_COPY = f"""
INSERT INTO jobs_job (id, eligible_at, {_COLUMNS})
SELECT gen_random_uuid(), eligible_at + number * interval '1 millisecond', {_COLUMNS}
FROM jobs_job, generate_series(1, %s - 1) AS number WHERE id = %s RETURNING id
"""


def submit_many(tenant: Tenant, count: int, *, host: str = "example.com:80", **fields: Any) -> list[Job]:
    """`count` due jobs, the first the longest due."""
    values = {"eligible_at": timezone.now() - timedelta(hours=1)} | fields
    first = lifecycle.submit(tenant, host=host, url=f"http://{host}/", **values)
    with connection.cursor() as cursor:
        cursor.execute(_COPY, [count, first.pk])
        ids = [first.pk, *(row[0] for row in cursor.fetchall())]
    return sorted(Job.objects.filter(pk__in=ids), key=lambda job: job.eligible_at)


def publish(limit: int, dispatcher: Dispatcher) -> list[Job]:
    """One pass; the jobs in the order in which they were sent."""
    sent: list[str] = []
    publisher.publish_batch(limit, lambda messages: sent.extend(one.arguments[0] for one in messages), dispatcher)
    rows = {str(row.id): row for row in Job.objects.filter(pk__in=sent)}
    return [rows[one] for one in sent]


def end_all() -> None:
    """Whatever is in flight has ended."""
    Job.objects.filter(state=State.QUEUED).exclude(published_at=None).update(
        state=State.CANCELLED, reason="cancelled", finished_at=Now()
    )
    Job.objects.filter(state=State.RUNNING).update(
        state=State.CANCELLED, reason="cancelled", finished_at=Now(), lease_expires_at=None
    )


def wait_for_limits(dispatcher: Dispatcher) -> None:
    """As after more than a second: limits are read anew."""
    dispatcher._refresh_at = 0.0


# order


def test_a_burst_does_not_stand_before_a_neighbours_single_job() -> None:
    crawler, shop = make_tenant("crawler"), make_tenant("shop")
    submit_many(crawler, 400)
    submit_many(shop, 1)
    first = publish(8, Dispatcher())
    assert [job.tenant_id for job in first[:2]].count(shop.id) == 1


def test_tenants_take_turns_by_weight_and_priorities_by_theirs() -> None:
    large, small = Tenant.objects.create(name="large", weight=3), make_tenant("small")
    for tenant in (large, small):
        for priority in Priority.values:
            submit_many(tenant, 300, priority=priority)
    sent = publish(200, Dispatcher())
    counts = Counter(job.priority for job in sent)
    assert all(abs(counts[priority] - share) <= 1 for priority, share in {1: 120, 2: 60, 3: 20}.items())
    assert len(sent) == 200
    for priority in Priority.values:
        shares = Counter(job.tenant_id for job in sent if job.priority == priority)
        assert abs(shares[large.id] - 0.75 * shares.total()) <= 1


def test_the_order_goes_on_from_pass_to_pass() -> None:
    large, small = Tenant.objects.create(name="large", weight=3), make_tenant("small")
    for tenant in (large, small):
        submit_many(tenant, 100)
    dispatcher = Dispatcher()
    sent = [job for _ in range(40) for job in publish(2, dispatcher)]
    assert Counter(job.tenant_id for job in sent) == {large.id: 60, small.id: 20}
    assert len({job.id for job in sent}) == 80


def test_hosts_of_a_tenant_take_turns_and_a_hosts_jobs_go_by_age() -> None:
    tenant = make_tenant()
    names = ["a:80", "b:80", "c:80"]
    rows = {name: submit_many(tenant, 20, host=name) for name in names}
    sent = publish(30, Dispatcher())
    assert Counter(job.host for job in sent) == dict.fromkeys(names, 10)
    for name in names:
        assert [job.id for job in sent if job.host == name] == [job.id for job in rows[name][:10]]


def test_everything_due_is_sent_exactly_once_however_small_the_passes() -> None:
    tenants = [make_tenant() for _ in range(5)]
    for number, tenant in enumerate(tenants):
        for host in range(7):
            submit_many(tenant, number + host, host=f"host{host}:80", priority=1 + host % 3)
    dispatcher, sent = Dispatcher(), list[Job]()
    while found := publish(13, dispatcher):
        sent += found
    assert len(sent) == len({job.id for job in sent}) == Job.objects.count()


# limits


def test_a_tenant_never_has_more_in_flight_than_its_limit() -> None:
    limited, other = Tenant.objects.create(name="limited", max_running=3), make_tenant("other")
    for tenant in (limited, other):
        for priority in Priority.values:
            submit_many(tenant, 20, priority=priority)
    dispatcher = Dispatcher()
    sent = publish(30, dispatcher)
    assert Counter(job.tenant_id for job in sent) == {limited.id: 3, other.id: 27}
    assert dispatcher.waits_for_an_end()
    for job in [job for job in sent if job.tenant_id == limited.id][:2]:
        lifecycle.claim_now(job)
    assert limited.id not in {job.tenant_id for job in publish(5, dispatcher)}, "running counts as well"
    end_all()
    assert Counter(job.tenant_id for job in publish(6, dispatcher)) == {limited.id: 3, other.id: 3}


def test_a_paused_tenant_waits_until_it_is_resumed_without_a_restart() -> None:
    tenant = Tenant.objects.create(name="paused", paused=True)
    submit_many(tenant, 2)
    dispatcher = Dispatcher()
    assert publish(5, dispatcher) == []
    Tenant.objects.filter(pk=tenant.pk).update(paused=False)
    wait_for_limits(dispatcher)
    assert len(publish(5, dispatcher)) == 2


def test_a_weight_is_changed_without_a_restart() -> None:
    one, two = make_tenant(), make_tenant()
    for tenant in (one, two):
        submit_many(tenant, 100)
    dispatcher = Dispatcher()
    assert Counter(job.tenant_id for job in publish(20, dispatcher)) == {one.id: 10, two.id: 10}
    Tenant.objects.filter(pk=one.pk).update(weight=4)
    wait_for_limits(dispatcher)
    assert Counter(job.tenant_id for job in publish(50, dispatcher)) == {one.id: 40, two.id: 10}


@pytest.mark.parametrize("how", ["paused", "blocked", "slow", "connections"])
def test_a_host_that_may_not_go_delays_only_its_own_jobs(how: str) -> None:
    """One tenant has 2,000 jobs of the busy host in front of one for a free host."""
    tenant = make_tenant()
    submit_many(tenant, 2000, host="busy:80")
    (free,) = submit_many(tenant, 1, host="free:80", eligible_at=timezone.now() - timedelta(seconds=60))
    kinds: dict[str, dict[str, Any]] = {"slow": {"rate": 0.01, "burst": 1}, "connections": {"concurrency": 1}}
    limits = kinds.get(how, {})
    if how == "blocked":
        hosts.block("busy:80", 60, by="http_429")
    else:
        HostPolicy.objects.create(host="busy:80", paused=how == "paused", **limits)
    sent = publish(50, Dispatcher())
    assert Counter(job.host for job in sent) == {"free:80": 1} | ({"busy:80": 1} if limits else {})
    assert free.id in {job.id for job in sent}


def test_a_free_hosts_job_that_comes_later_does_not_wait_behind_the_busy_host() -> None:
    tenant = make_tenant()
    submit_many(tenant, 2000, host="busy:80")
    HostPolicy.objects.create(host="busy:80", rate=0.01, burst=1)
    dispatcher = Dispatcher()
    publish(50, dispatcher)
    assert publish(50, dispatcher) == []
    submit_many(tenant, 1, host="free:80", eligible_at=timezone.now())
    assert [job.host for job in publish(50, dispatcher)] == ["free:80"]


def test_a_host_that_may_go_again_is_found_without_a_search() -> None:
    tenant = make_tenant()
    submit_many(tenant, 5, host="busy:80")
    policy = HostPolicy.objects.create(host="busy:80", paused=True)
    dispatcher = Dispatcher()
    assert publish(50, dispatcher) == []
    policy.delete()
    wait_for_limits(dispatcher)
    assert len(publish(50, dispatcher)) == 5


def test_the_next_pass_is_due_when_a_host_may_go_again() -> None:
    submit_many(make_tenant(), 5, host="slow:80")
    HostPolicy.objects.create(host="slow:80", rate=0.1, burst=1)
    dispatcher = Dispatcher()
    assert len(publish(50, dispatcher)) == 1
    wait = dispatcher.seconds_until_work()
    assert wait is not None
    assert 5 < wait <= 10


def test_a_free_host_is_found_behind_hundreds_that_may_not_go() -> None:
    tenant = make_tenant()
    HostPolicy.objects.bulk_create(HostPolicy(host=f"busy{number:04}:80", paused=True) for number in range(300))
    for number in range(300):
        submit_many(tenant, 1, host=f"busy{number:04}:80")
    submit_many(tenant, 1, host="free:80")
    dispatcher, passes = Dispatcher(), 0
    while not (sent := publish(50, dispatcher)):
        passes += 1
        assert dispatcher.seconds_until_work() is not None, "it would sleep with work left"
        assert passes < 40
    assert [job.host for job in sent] == ["free:80"]


def test_a_new_job_of_a_free_host_is_found_at_once_behind_more_blocked_hosts_than_are_remembered() -> None:
    tenant = make_tenant()
    HostPolicy.objects.bulk_create(HostPolicy(host=f"busy{number:04}:80", paused=True) for number in range(300))
    for number in range(300):
        submit_many(tenant, 1, host=f"busy{number:04}:80")
    dispatcher = Dispatcher()
    for _ in range(10):
        assert publish(50, dispatcher) == []
    submit_many(tenant, 1, host="free:80", eligible_at=timezone.now())
    assert [job.host for job in publish(50, dispatcher)] == ["free:80"]


# the window


def test_without_a_setting_the_window_counts_what_runs_as_well(settings: Any) -> None:
    settings.PUBLISH_WINDOW, settings.WORKER_SLOTS = 0, 4
    submit_many(make_tenant(), 50)
    dispatcher = Dispatcher()
    sent = publish(100, dispatcher)
    assert len(sent) == window(4, FIRST_GUESS_SECONDS)
    for job in sent[:4]:
        lifecycle.claim_now(job)
    assert publish(100, dispatcher) == [], "four run, and those that are next wait in the broker"
    assert dispatcher.waits_for_an_end()
    end_all()
    assert len(publish(100, dispatcher)) >= 5


def test_the_window_is_a_short_time_of_the_pools_work_and_at_most_twice_its_slots() -> None:
    assert window(20, 0.001) == window(20, 0.5) == 40
    assert window(20, 1.0) == 30
    assert window(20, 30.0) == 25
    assert window(1, 300.0) == 2, "the next job is always at hand"


def test_a_set_window_counts_only_what_nobody_has_claimed(settings: Any) -> None:
    settings.PUBLISH_WINDOW = 5
    submit_many(make_tenant(), 50)
    dispatcher = Dispatcher()
    for job in publish(100, dispatcher)[:3]:
        lifecycle.claim_now(job)
    assert len(publish(100, dispatcher)) == 3


# takeover, and rows that come from behind


def test_a_new_leader_goes_on_from_the_rows() -> None:
    limited = Tenant.objects.create(name="limited", max_running=3)
    HostPolicy.objects.create(host="narrow:80", concurrency=2)
    other = make_tenant()
    submit_many(limited, 10)
    submit_many(other, 10, host="narrow:80")
    before = publish(20, Dispatcher())
    assert Counter(job.tenant_id for job in before) == {limited.id: 3, other.id: 2}
    assert publish(20, Dispatcher()) == []


def test_a_retry_is_found_when_it_is_due() -> None:
    job = lifecycle.submit()
    dispatcher = Dispatcher()
    publish(5, dispatcher)
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_503", again_after=30.0))
    assert publish(5, dispatcher) == []
    Job.objects.filter(pk=job.pk).update(eligible_at=Now())
    assert [one.claim_no for one in publish(5, dispatcher)] == [1]


def test_a_job_that_commits_long_after_its_time_is_found_at_once_in_an_empty_lane() -> None:
    dispatcher = Dispatcher()
    for _ in range(3):
        lifecycle.submit(eligible_at=timezone.now() - timedelta(minutes=1))
        dispatcher._reader._next_scan = 0.0
        assert len(publish(5, dispatcher)) == 1
        dispatcher._reader._next_scan = 0.0
        assert publish(5, dispatcher) == []


def test_a_job_that_was_put_back_is_sent_again() -> None:
    job = lifecycle.submit()
    dispatcher = Dispatcher()
    publish(5, dispatcher)
    Job.objects.filter(pk=job.pk).update(published_at=None, eligible_at=Now())
    assert [one.id for one in publish(5, dispatcher)] == [job.id]


def test_what_could_not_be_sent_is_chosen_again_by_the_same_dispatcher() -> None:
    submit_many(make_tenant(), 5)

    def broken(messages: Sequence[Message]) -> None:
        raise OSError("the broker is gone")

    dispatcher = Dispatcher()
    with pytest.raises(OSError, match="gone"):
        publisher.publish_batch(5, broken, dispatcher)
    assert len(publish(5, dispatcher)) == 5


def test_a_lost_message_with_an_old_time_is_found_after_the_rewind() -> None:
    tenant = make_tenant()
    rows = submit_many(tenant, 100)
    dispatcher = Dispatcher()
    publish(60, dispatcher)
    end_all()
    publish(20, dispatcher)
    Job.objects.filter(pk=rows[70].pk).update(published_at=None)
    dispatcher._rewind_at = 0.0
    assert rows[70].id in {job.id for job in publish(50, dispatcher)}


@pytest.mark.django_db(transaction=True)
def test_a_row_that_commits_late_is_not_hidden_by_what_was_read_before() -> None:
    """Two intakes: the one that began first commits last, with the earlier time."""
    tenant = make_tenant()
    began, committed = threading.Event(), threading.Event()

    def slow_intake() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                lifecycle.submit(tenant, eligible_at=Now(), url="http://example.com/late")
                began.set()
                assert committed.wait(10)
                cursor.execute("COMMIT")
        finally:
            connection.close()

    intake = threading.Thread(target=slow_intake)
    intake.start()
    assert began.wait(10)
    lifecycle.submit(tenant, eligible_at=Now())
    dispatcher = Dispatcher()
    assert len(publish(5, dispatcher)) == 1
    committed.set()
    intake.join(10)
    assert [job.url for job in publish(5, dispatcher)] == ["http://example.com/late"]


def test_hosts_whose_jobs_lie_ahead_do_not_keep_the_publisher_busy() -> None:
    tenant = make_tenant()
    tomorrow = timezone.now() + timedelta(days=1)
    for number in range(150):
        submit_many(tenant, 1, host=f"host{number:03}:80", eligible_at=tomorrow)
    dispatcher = Dispatcher()
    for _ in range(10):
        assert publish(50, dispatcher) == []
    for _ in range(2):  # at most one more pass, for the search for lanes that the last one left out
        time.sleep(dispatcher.seconds_until_work() or 0)
        assert publish(50, dispatcher) == []
        if dispatcher.seconds_until_work() is None:
            break
    assert dispatcher.seconds_until_work() is None
    submit_many(tenant, 1, host="now:80", eligible_at=timezone.now() - timedelta(seconds=1))
    assert len(publish(50, dispatcher)) == 1


def test_memory_holds_a_few_rows_of_each_lane_however_many_wait() -> None:
    tenants = [make_tenant() for _ in range(4)]
    for tenant in tenants:
        for host in range(5):
            submit_many(tenant, 60, host=f"host{host}:80")
    dispatcher = Dispatcher()
    for _ in range(5):
        publish(20, dispatcher)
        end_all()
    assert dispatcher.order.buffered() <= 100 < Job.objects.filter(published_at=None).count()


# plans


@pytest.mark.django_db(transaction=True)
def test_the_backlog_is_read_by_its_index_also_when_the_planner_knows_nothing() -> None:
    tenants = [make_tenant() for _ in range(3)]
    for tenant in tenants:
        submit_many(tenant, 300)
    lane = Lane(Priority.NORMAL, str(tenants[0].id))
    asked = backlog._parameters([Request(lane, 5, Walk())], [], 8)
    statements: list[tuple[str, Any]] = [
        (backlog._HEADS, asked),
        (backlog._LANES, None),
        (backlog._FRESH, [5.0, 10]),
        (backlog._IN_FLIGHT, {"messages": None, "leases": None, "renewed": 30}),
    ]
    for statement, parameters in statements:
        with backlog.reading():
            plan = "\n".join(row[0] for row in backlog._rows(f"EXPLAIN (ANALYZE) {statement}", parameters))
        assert "Seq Scan on jobs_job" not in plan, plan
        assert "Bitmap" not in plan, plan
        read = [
            float(line.split("rows=")[2].split()[0])  # PostgreSQL 18 tells the mean over loops
            for line in plan.splitlines()
            if "jobs_job" in line and "actual" in line
        ]
        assert max(read, default=0) <= 20, plan


# the report


def test_the_report_says_why_jobs_wait() -> None:
    paused, busy = Tenant.objects.create(name="paused", paused=True), make_tenant("busy")
    submit_many(paused, 3)
    submit_many(busy, 3, host="blocked:80")
    hosts.block("blocked:80", 60, by="http_429")
    dispatcher = Dispatcher()
    publish(10, dispatcher)
    clock = iter([10.0, 10.1, 11.0, 12.0, 16.0])
    reporter = dispatch_report.Reporter(lambda: next(clock))
    assert reporter.report(dispatcher)
    document = DispatchReport.objects.get().document
    assert document["tenants"] == {str(paused.id): "tenant_paused"}
    reason, until = document["hosts"]["blocked:80"]
    assert reason == "host_blocked"
    assert until.endswith("Z")
    assert (document["window_full"], document["waiting_tenants"]) == (False, 2)
    assert [reporter.report(dispatcher) for _ in range(4)] == [False, False, False, True], "only what is new or old"


def test_an_idle_publisher_writes_one_report_and_no_more() -> None:
    dispatcher = Dispatcher()
    publish(10, dispatcher)
    clock = iter(float(second) for second in range(1, 100, 10))
    reporter = dispatch_report.Reporter(lambda: next(clock))
    assert [reporter.report(dispatcher) for _ in range(4)] == [True, False, False, False]


def test_a_full_window_is_reported_with_those_who_wait_for_it(settings: Any) -> None:
    settings.PUBLISH_WINDOW = 2
    for name in ("one", "two"):
        submit_many(make_tenant(name), 3)
    dispatcher = Dispatcher()
    publish(10, dispatcher)
    submit_many(make_tenant("three"), 1)
    dispatcher._reader._next_scan = 0.0
    assert publish(10, dispatcher) == []
    found = dispatch_report.document(dispatcher)
    assert (found["window_full"], found["waiting_tenants"]) == (True, 3)


def test_what_is_in_flight_is_counted_from_the_rows() -> None:
    tenant = make_tenant()
    first, second, third = submit_many(tenant, 3)
    Job.objects.filter(pk__in=[first.pk, second.pk]).update(published_at=Now())
    transitions.claim([transitions.ClaimTicket(first.pk, 0)], worker="w", executors=["http"])
    held = backlog.in_flight()
    assert (held.published, held.running, held.hosts) == (1, 1, {"example.com:80": 2})
    again = backlog.in_flight(held.oldest_message, held.first_lease)
    assert (again.published, again.running) == (1, 1)
    assert third.id is not None


def test_lanes_with_the_same_hosts_begin_at_different_ones(settings: Any) -> None:
    settings.DEFAULT_HOST_CONCURRENCY = 1
    for number in range(20):
        tenant = make_tenant(f"tenant {number}")
        for host in range(20):
            age = timedelta(minutes=host, seconds=number)
            lifecycle.submit(tenant, host=f"host{host:02}.example:80", eligible_at=timezone.now() - age)
    dispatcher = Dispatcher()
    reads: list[str] = []

    def note(execute: Any, statement: str, *others: Any) -> Any:
        reads.extend(["heads"] * (statement == backlog._HEADS))
        return execute(statement, *others)

    with connection.execute_wrapper(note):
        chosen = dispatcher.choose(10)

    assert len({job.host for job in chosen}) == 10  # one connection each, and all from a row that was read once
    assert len(reads) <= 5


def test_the_connections_of_a_dead_worker_are_free_before_its_leases_run_out(settings: Any) -> None:
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS = 60, 10
    settings.DEFAULT_HOST_CONCURRENCY = 1
    held, waiting = submit_many(make_tenant(), 2)
    lifecycle.claim_now(held)

    Job.objects.filter(pk=held.pk).update(lease_expires_at=Now() + timedelta(seconds=31))  # renewed 29 s ago
    assert publish(10, Dispatcher()) == []
    Job.objects.filter(pk=held.pk).update(lease_expires_at=Now() + timedelta(seconds=29))
    assert publish(10, Dispatcher()) == [waiting]


def test_a_pass_that_did_not_look_for_lanes_says_when_the_next_will() -> None:
    dispatcher = Dispatcher()
    first = submit_many(make_tenant(), 1)
    assert publish(10, dispatcher) == first
    assert dispatcher.seconds_until_work() is None  # it has looked everywhere

    dispatcher._reader._next_scan = dispatcher.now + 3600  # as after a search that took minutes
    late = submit_many(make_tenant(), 1)  # due for an hour: not among those that became due lately
    assert publish(10, dispatcher) == []
    assert 3500 < (dispatcher.seconds_until_work() or 0) < 3600

    dispatcher._reader._next_scan = 0.0
    assert publish(10, dispatcher) == late

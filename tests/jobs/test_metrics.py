"""The queue's metrics: true to the rows, cheap on a big table, absent while the database does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from jobs import counters, dead_letters, leases, vitals
from jobs.dead_letters import Selection
from jobs.leadership import PUBLISHER_LOCK, Leader
from jobs.metrics import GAUGES, HOLDS, QueueCollector
from jobs.models import DispatchReport, HostPolicy, HostState, Job, WorkerProcess
from jobs.notices import dedicated_connection
from jobs.states import State
from jobs.vitals import Vitals
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import make_job, make_tenant


def scraped() -> dict[str, float]:
    """What a scrape shows now, by sample name and stage."""
    registry = CollectorRegistry()
    registry.register(QueueCollector(fresh_seconds=0.0))
    samples = (sample for family in registry.collect() for sample in family.samples)
    return {" ".join((sample.name, *sample.labels.values())): sample.value for sample in samples}


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=5)  # a busy machine takes its time between a write and the read


def move(job: Job, **ages: int) -> None:
    """Set the job's times to so many seconds ago."""
    Job.objects.filter(pk=job.pk).update(**{name: Now() - timedelta(seconds=age) for name, age in ages.items()})


@pytest.mark.django_db
def test_an_empty_queue_has_no_ages_and_no_workers() -> None:
    shown = scraped()

    assert shown["jobs_oldest_queued_age_seconds"] == 0
    assert shown["jobs_worker_processes"] == 0
    assert shown["jobs_publisher_leading"] == 0
    assert shown["stale_attempt_total"] == 0
    assert shown["postgres_connections"] >= 1


@pytest.mark.django_db
def test_unfinished_jobs_are_counted_where_they_stand() -> None:
    due, published = lifecycle.submit(), lifecycle.submit()
    move(due, eligible_at=100)
    move(lifecycle.submit(), eligible_at=-100)
    move(published, eligible_at=500, published_at=300)
    lifecycle.claim_now(lifecycle.submit())
    make_job(due.tenant, state=State.SUCCEEDED)

    shown = scraped()

    stages = {stage: shown[f"jobs_unfinished {stage}"] for stage in ("due", "delayed", "published", "running")}
    assert stages == {"due": 1, "delayed": 1, "published": 1, "running": 1}
    assert shown["jobs_queued_past_promise"] == 2
    assert shown["jobs_oldest_queued_age_seconds"] == about(500)
    assert shown["jobs_messages_unclaimed"] == 1
    assert shown["jobs_oldest_message_age_seconds"] == about(300)


@pytest.mark.django_db
def test_jobs_that_are_held_back_are_counted_by_the_reason_and_not_as_late() -> None:
    tenant, paused = make_tenant(), make_tenant()
    limited = make_tenant()
    Tenant.objects.filter(pk=paused.pk).update(paused=True)
    HostPolicy.objects.create(host="paused.example:80", paused=True)
    HostState.objects.create(host="blocked.example:80", blocked_until=Now() + timedelta(hours=1), blocked_by="http_429")
    HostState.objects.create(host="free.example:80", blocked_until=Now() - timedelta(hours=1), blocked_by="http_429")
    known = {"hosts": {"busy.example:80": ["host_rate", None]}, "tenants": {str(limited.pk): "tenant_limit"}}
    DispatchReport.objects.create(document=known)
    for owner, host, age in (
        (paused, "paused.example:80", 900),
        (tenant, "paused.example:80", 800),
        (tenant, "blocked.example:80", 700),
        (limited, "free.example:80", 600),
        (tenant, "busy.example:80", 500),
        (tenant, "busy.example:80", 500),
        (tenant, "free.example:80", 400),
    ):
        move(lifecycle.submit(owner, host=host), eligible_at=age)

    shown = scraped()

    assert {reason: shown[f"jobs_held_back {reason}"] for reason in HOLDS} == {
        "tenant_paused": 1, "host_paused": 1, "host_blocked": 1, "tenant_limit": 1, "host_rate": 2
    }  # fmt: skip
    assert shown["jobs_unfinished due"] == 7
    assert shown["jobs_queued_past_promise"] == 1
    assert shown["jobs_oldest_queued_age_seconds"] == about(400)


@pytest.mark.django_db
def test_refusals_are_told_by_the_limit_that_was_met() -> None:
    counters.add(counters.REFUSED["max_queued"], 7)

    shown = scraped()

    assert (shown["jobs_refused_total max_queued"], shown["jobs_refused_total submit_rate"]) == (7, 0)


@pytest.mark.django_db
def test_a_lease_that_ran_out_shows_until_it_is_swept() -> None:
    late, held = (lifecycle.claim_now(lifecycle.submit()) for _ in range(2))
    move(Job.objects.get(pk=late.job_id), lease_expires_at=7)

    shown = scraped()

    assert shown["jobs_running_past_lease"] == 1
    assert shown["jobs_oldest_expired_lease_age_seconds"] == about(7)
    assert lifecycle.finish(lifecycle.success(held))


@pytest.mark.django_db
def test_ends_that_nobody_was_told_of() -> None:
    move(make_job(make_tenant(), state=State.FAILED), finished_at=90)
    make_job(make_tenant(), state=State.CANCELLED, finish_published_at=Now())

    shown = scraped()

    assert shown["jobs_finish_events_waiting"] == 1
    assert shown["jobs_oldest_finish_event_age_seconds"] == about(90)


@pytest.mark.django_db
def test_dead_letters_and_those_of_the_last_day() -> None:
    tenant = make_tenant()
    for age in (10, 20, 90_000):
        move(make_job(tenant, state=State.FAILED, error_code="crash_loop"), finished_at=age)
    move(make_job(tenant, state=State.FAILED), finished_at=30)

    shown = scraped()

    assert shown["jobs_dead_letters"] == 4
    assert shown["jobs_dead_letters_last_day"] == 3
    assert shown["jobs_crash_loops_last_day"] == 2


@pytest.mark.django_db
def test_workers_are_those_heard_of_lately() -> None:
    leases.renew([], worker="a", slots=20)
    leases.renew([], worker="b", slots=5)
    leases.renew([], worker="gone", slots=7)
    WorkerProcess.objects.filter(name="gone").update(seen_at=Now() - timedelta(hours=1))

    shown = scraped()

    assert (shown["jobs_worker_processes"], shown["jobs_worker_slots"]) == (2, 25)


@pytest.mark.django_db
def test_discarded_endings_are_counted_for_good() -> None:
    counters.add(counters.STALE_ATTEMPTS, 2)
    counters.add(counters.STALE_ATTEMPTS, 3)
    counters.add(counters.STALE_ATTEMPTS, 0)

    assert scraped()["stale_attempt_total"] == 5


@pytest.mark.django_db
def test_failures_of_our_own_are_counted_whatever_code_they_end_with() -> None:
    for code, ours in (("internal_fetch_error", True), ("unsafe_to_retry", True), ("http_404", False)):
        claimed = lifecycle.claim_now(lifecycle.submit())
        ending = lifecycle.failure(claimed, code, internal_error=ours)
        assert lifecycle.finish(ending)
        assert not lifecycle.finish(ending)

    assert scraped()["internal_fetch_error_total"] == 2


@pytest.mark.django_db(transaction=True)
def test_a_publisher_leads_while_it_holds_its_lock() -> None:
    leader = Leader(PUBLISHER_LOCK)
    try:
        assert leader.lead()
        assert scraped()["jobs_publisher_leading"] == 1
    finally:
        leader.close()
    assert vitals.observe().server.publisher_leads is False


@pytest.mark.django_db(transaction=True)
def test_another_lock_is_no_publisher() -> None:
    other = Leader(PUBLISHER_LOCK + 2**32)
    try:
        assert other.lead()
        assert scraped()["jobs_publisher_leading"] == 0
    finally:
        other.close()


@contextmanager
def open_transaction(statement: str) -> Iterator[int]:
    """A transaction on a connection of its own, after `statement`; its process id."""
    with dedicated_connection() as link, link.transaction():
        link.execute(statement)
        yield link.info.backend_pid


@pytest.mark.django_db(transaction=True)
def test_the_oldest_open_transaction_is_measured_and_named() -> None:
    with open_transaction("SELECT 1") as process, open_transaction("SELECT pg_sleep(0.2)"):
        server = vitals.observe().server

    assert 0.2 <= server.oldest_transaction_age < 60
    assert f"process {process} " in server.oldest_transaction
    assert "idle in transaction" in server.oldest_transaction
    assert vitals.observe().server.oldest_transaction_age == 0


@pytest.mark.django_db(transaction=True)
def test_metrics_are_absent_while_the_database_does_not_tell_them(client: Client) -> None:
    with open_transaction("LOCK TABLE jobs_job IN ACCESS EXCLUSIVE MODE"):
        assert scraped() == {}
        assert client.get("/metrics").status_code == 200
    assert scraped() != {}


@pytest.mark.django_db
def test_every_metric_is_served(client: Client) -> None:
    text = client.get("/metrics").content.decode()
    served = {family.name for family in text_string_to_metric_families(text)}

    assert {name for name, _, _ in GAUGES} | {"jobs_unfinished", "stale_attempt"} <= served


class Slow:
    """Vitals that take until they are let go, and how often they were asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.let_go = threading.Event()

    def __call__(self) -> Vitals:
        self.asked += 1
        assert self.let_go.wait(30)
        return vitals.observe()


@pytest.mark.django_db(transaction=True)
def test_scrapes_at_once_share_one_read_until_it_is_old() -> None:
    now, slow = [0.0], Slow()
    collector = QueueCollector(slow, clock=lambda: now[0], fresh_seconds=2.0)

    def scrape() -> None:
        list(collector.collect())
        connection.close()

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    slow.let_go.set()
    for thread in threads:
        thread.join(30)
    assert slow.asked == 1

    now[0] = 1.9
    assert list(collector.collect())
    assert slow.asked == 1
    now[0] = 2.0
    assert list(collector.collect())
    assert slow.asked == 2


ROWS = 200_000
FILL = """
INSERT INTO jobs_job (id, tenant_id, state, reason, priority, url, host, method, headers, executor, follow_redirects,
    retry_unsafe, deadline_seconds, max_attempts, max_bytes, callback_url, tags, created_at, eligible_at, finished_at,
    published_at, finish_published_at, claim_no, claimed_at, lease_expires_at, worker, attempts, losses, error_code,
    error_detail, result_key, result_bytes, result_content_type, result_sha256, result_final_url)
SELECT gen_random_uuid(), %(tenant)s, state, 'filled', 2, 'http://h.example/' || n, 'h' || n %% 300 || '.example:80',
    'GET', '{}', 'http', true, false, 30, 5, 1000, '', '{}', now(),
    now() + (random() - 0.6) * interval '1 hour',
    CASE WHEN state IN ('succeeded', 'failed') THEN now() - random() * interval '9 days' END,
    CASE WHEN state <> 'queued' OR n %% 10 = 0 THEN now() - random() * interval '1 hour' END,
    CASE WHEN state = 'succeeded' AND n %% 20 > 0 THEN now() END,
    1, now(), CASE WHEN state = 'running' THEN now() + (random() - 0.1) * interval '1 minute' END, 'w', 1, 0,
    CASE WHEN state = 'failed' THEN 'http_' || 400 + n %% 4 ELSE '' END, '', 'key', 5, '', '', ''
FROM (
    SELECT n, CASE WHEN n %% 100 < 50 THEN 'queued' WHEN n %% 100 < 52 THEN 'running' WHEN n %% 100 < 60 THEN 'failed'
        ELSE 'succeeded' END AS state
    FROM generate_series(1, %(rows)s) n
) filled
"""


WITHOUT_ITS_CHECKS = """
ALTER TABLE jobs_job DISABLE TRIGGER USER;
DO $$ BEGIN EXECUTE (SELECT string_agg(format('ALTER TABLE jobs_job DROP CONSTRAINT %I', conname), ';')
    FROM pg_constraint WHERE conrelid = 'jobs_job'::regclass AND contype = 'f'); END $$;
"""


@pytest.fixture
def big_table(db: None) -> None:
    """ROWS jobs in all states, with statistics; rolled back with the test."""
    tenant = make_tenant()
    with connection.cursor() as cursor:
        cursor.execute(WITHOUT_ITS_CHECKS)  # they would take longer than the rows; the rollback brings them back
        cursor.execute(FILL, {"tenant": tenant.pk, "rows": ROWS})
        cursor.execute("ANALYZE jobs_job")


@contextmanager
def explained() -> Iterator[list[str]]:
    """The plans of the queries made meanwhile, as the planner chose them in that very place."""
    plans: list[str] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "jobs_job" in sql:
            execute(f"EXPLAIN {sql}", params, many, context)
            plans.append("\n".join(line for (line,) in context["cursor"].fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        yield plans


def test_no_look_at_a_big_table_reads_it_whole(big_table: None) -> None:
    with explained() as plans:
        seen = vitals.observe()
        compiled = [plan for plan in plans if "JIT:" in plan]
        dead_letters.newest(Selection(), 100)
        dead_letters.newest(Selection(hosts=["h7.example:443", "h7.example:80"], code="http_403"), 100)
        dead_letters.incidents(Selection(), 100)
        dead_letters.redrive(Selection(hosts=["h7.example:80"]).jobs)

    assert seen.queue.due == vitals.COUNTED
    assert seen.failures.last_day > 1_000
    assert len(plans) >= 6
    assert [plan for plan in plans if "Seq Scan on jobs_job" in plan] == []
    assert compiled == []

"""The doctor: silent while all is well, and for each fault a finding that names it and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from core.health import Finding as Answer
from core.health import Report
from jobs import doctor, leases, patience, sweeper, vitals
from jobs.doctor import INCIDENT, OLD_TRANSACTION_SECONDS, Finding, Level
from jobs.leadership import PUBLISHER_LOCK, Leader
from jobs.models import Job, WorkerProcess
from jobs.notices import dedicated_connection
from jobs.states import State
from jobs.vitals import Failures, FullQueue, Pause, Pool, Queue, Server, Vitals
from tests import lifecycle
from tests.commands import manage
from tests.docs.markdown import ROOT
from tests.factories import make_job, make_tenant

WELL = Report({name: Answer(0.01) for name in ("database", "broker", "cache", "storage")}, frozenset({"database"}))
FINE = Vitals(
    queue=Queue(
        due=3,
        delayed=2,
        published=5,
        running=20,
        past_promise=0,
        oldest_age=4.0,
        unclaimed=0,
        oldest_message_age=1.0,
        past_lease=0,
        oldest_expired_lease_age=0.0,
        finish_events=2,
        oldest_finish_event_age=0.5,
    ),
    failures=Failures(
        dead_letters=500,
        last_day=60,
        crash_loops=0,
        biggest_host="a.example:80",
        biggest_code="dns_error",
        biggest_count=9,
    ),
    pool=Pool(processes=2, slots=40, busy=20, last_seen_age=3.0, overdue=0),
    server=Server(
        publisher_leads=True,
        connections=20,
        max_connections=100,
        ends_idle_transactions=True,
        oldest_transaction_age=0.2,
        oldest_transaction="process 7 of role jobs (scraping-jobs, active)",
    ),
    stale_attempts=4,
    internal_errors=0,
)


def with_(part: str, **values: Any) -> Vitals:
    """Vitals that are fine but for these."""
    return replace(FINE, **{part: replace(getattr(FINE, part), **values)})


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_while_all_is_well_nothing_is_said() -> None:
    assert doctor.examine(WELL, FINE) == []


@pytest.mark.parametrize(
    ("seen", "level", "what", "do"),
    [
        (with_("pool", processes=0, last_seen_age=300.0), "critical", "No worker process", "worker role"),
        (with_("server", publisher_leads=False), "critical", "No publisher leads", "manage.py publish"),
        (
            with_("queue", past_lease=3, oldest_expired_lease_age=100.0),
            "critical",
            "3 jobs are marked running past the lease, the oldest for 100 s",
            "sweep --once",
        ),
        (with_("queue", oldest_message_age=400.0), "critical", "does not sweep", "beat"),
        (with_("pool", overdue=1), "critical", "does not sweep", "beat"),
        (with_("queue", past_promise=1, oldest_age=61.0), "warning", "1 job is waiting for more than 60 s", "workers"),
        (with_("queue", unclaimed=1200), "warning", "1,200 jobs are published and unclaimed", "jobs.high"),
        (with_("queue", oldest_finish_event_age=61.0), "warning", "The ends of 2 jobs were not told", "publisher"),
        (
            with_("server", oldest_transaction_age=OLD_TRANSACTION_SECONDS + 1),
            "warning",
            "open for 31 s: process 7 of role jobs",
            "pg_terminate_backend",
        ),
        (with_("failures", crash_loops=2), "warning", "2 jobs failed as crash_loop", "redrive --code crash_loop"),
        (
            with_("failures", biggest_count=INCIDENT),
            "warning",
            "100 jobs for a.example:80 failed as dns_error",
            "redrive --host a.example:80 --code dns_error",
        ),
        (with_("server", connections=80), "warning", "80 of 100 connections", "max_connections"),
        (with_("server", ends_idle_transactions=False), "warning", "does not end transactions", "ALTER DATABASE"),
        (
            with_("held", pauses=(Pause("tenant", "acme & co", 120, 7300.0),)),
            "warning",
            "The tenant acme & co is paused and has 120 jobs waiting, the oldest for 2 h",
            "set_tenant 'acme & co' --resume",
        ),
        (
            with_("held", pauses=(Pause("host", "a.example:80", 1, 3601.0),)),
            "warning",
            "The host a.example:80 is paused and has 1 job waiting",
            "set_host a.example:80 --resume",
        ),
        (
            replace(FINE, full_queues=(FullQueue("acme", 1200),)),
            "warning",
            "The tenant acme has as many jobs queued as it may (1,200)",
            "set_tenant acme --max-queued",
        ),
    ],
)
def test_each_fault_is_named_with_what_to_do(seen: Vitals, level: str, what: str, do: str) -> None:
    finding = only(doctor.examine(WELL, seen))

    assert finding.level == level
    assert what in finding.what
    assert do in finding.do
    assert finding.why


@pytest.mark.parametrize(
    "seen",
    [
        with_("queue", past_lease=3, oldest_expired_lease_age=60.0),
        with_("queue", oldest_finish_event_age=60.0),
        with_("server", oldest_transaction_age=OLD_TRANSACTION_SECONDS),
        with_("failures", biggest_count=INCIDENT - 1),
        with_("server", connections=79),
        with_("held", pauses=(Pause("tenant", "acme", 120, 3600.0),)),
    ],
)
def test_what_mends_itself_in_time_is_no_finding(seen: Vitals) -> None:
    assert doctor.examine(WELL, seen) == []


@pytest.mark.parametrize(
    ("busy", "published", "processes", "why", "do"),
    [
        (40, 5, 2, "All 40 slots are busy", "Start more workers"),
        (20, 5, 2, "5 jobs are in the broker unclaimed although workers have free slots", "restart those"),
        (20, 0, 2, "not handed to the workers", "publisher"),
    ],
)
def test_a_broken_promise_has_its_reason_named(busy: int, published: int, processes: int, why: str, do: str) -> None:
    late = with_("queue", past_promise=9, oldest_age=90.0, published=published)
    finding = only(doctor.examine(WELL, replace(late, pool=replace(FINE.pool, busy=busy, processes=processes))))

    assert why in finding.why
    assert do in finding.do


@pytest.mark.parametrize("part", ["database", "broker", "cache", "storage"])
def test_a_part_that_does_not_answer_is_a_finding(part: str) -> None:
    report = Report({**WELL.findings, part: Answer(1.0, "Timeout")}, WELL.essential)
    finding = only(doctor.examine(report, None if part == "database" else FINE))

    assert finding.what == f"The {part} does not answer (Timeout)."
    assert finding.level is (Level.WARNING if part == "cache" else Level.CRITICAL)


def test_a_database_that_answers_but_tells_nothing_is_a_finding() -> None:
    assert "does not tell how the queue is" in only(doctor.examine(WELL, None)).what


def test_the_worst_comes_first() -> None:
    seen = replace(with_("failures", crash_loops=1), server=replace(FINE.server, publisher_leads=False))

    assert [finding.level for finding in doctor.examine(WELL, seen)] == [Level.CRITICAL, Level.WARNING]


# --- real faults ----------------------------------------------------------------------------------------------------


@pytest.fixture
def running(transactional_db: None) -> Iterator[None]:
    """A worker that beats and a publisher that leads, as far as the database knows them."""
    leases.renew([], worker="worker-a", slots=20)
    leader = Leader(PUBLISHER_LOCK)
    assert leader.lead()
    yield
    leader.close()


def told() -> list[dict[str, str]]:
    """What the doctor finds of the queue alone: the servers that the tests share with others are another matter."""
    ended = manage("doctor", "--json")
    findings: list[dict[str, str]] = ended.json["findings"]
    assert ended.code == (1 if findings else 0)
    assert ended.err == ""
    shared = ("does not answer", "connections of the database server")
    return [finding for finding in findings if not any(part in finding["what"] for part in shared)]


def shift(job: Job, **ages: float) -> None:
    Job.objects.filter(pk=job.pk).update(**{name: Now() - timedelta(seconds=age) for name, age in ages.items()})


@pytest.mark.usefixtures("running")
def test_a_running_service_has_no_findings() -> None:
    lifecycle.claim_now(lifecycle.submit())
    lifecycle.submit()

    assert told() == []


@pytest.mark.usefixtures("running")
def test_a_lease_that_nobody_sweeps_is_found_and_gone_after_the_sweep_it_asks_for() -> None:
    claimed = lifecycle.claim_now(lifecycle.submit())
    shift(Job.objects.get(pk=claimed.job_id), lease_expires_at=patience.late_sweep() + 5)

    (finding,) = told()
    assert finding["what"].startswith("1 job is marked running past the lease")

    assert sweeper.sweep().leases_expired == 1
    assert told() == []


@pytest.mark.usefixtures("running")
def test_sweeps_that_never_come_are_found() -> None:
    claimed = lifecycle.claim_now(lifecycle.submit())
    shift(Job.objects.get(pk=claimed.job_id), lease_expires_at=4 * patience.late_sweep())

    assert [finding["what"][:26] for finding in told()] == ["1 job is marked running pa", "The sweeper does not sweep"]


@pytest.mark.usefixtures("running")
def test_an_open_transaction_is_found_and_named() -> None:
    with dedicated_connection() as link, link.transaction():
        link.execute("SELECT 1")
        process = link.info.backend_pid
        seen = vitals.observe()
    aged = replace(seen, server=replace(seen.server, oldest_transaction_age=seen.server.oldest_transaction_age + 31))

    assert seen.server.oldest_transaction_age > 0
    assert f"process {process} " in only(doctor.examine(WELL, aged)).what
    assert doctor.examine(WELL, vitals.observe()) == []


def test_missing_roles_are_found(transactional_db: None) -> None:
    assert [finding["what"] for finding in told()] == ["No worker process is alive.", "No publisher leads."]


@pytest.mark.usefixtures("running")
def test_a_worker_not_heard_of_for_a_lease_is_no_worker() -> None:
    WorkerProcess.objects.update(seen_at=Now() - timedelta(hours=5))

    whats = {finding["what"]: finding["why"] for finding in told()}
    assert whats["No worker process is alive."] == "The last heartbeat came 5 h ago."
    assert "worker processes long gone" in whats["The sweeper does not sweep."]


@pytest.mark.usefixtures("running")
def test_a_hundred_failures_of_one_kind_are_one_finding() -> None:
    tenant = make_tenant()
    for _ in range(INCIDENT):
        shift(make_job(tenant, state=State.FAILED, finish_published_at=Now()), finished_at=60)

    (finding,) = told()
    assert finding["what"] == "100 jobs for example.com:443 failed as http_404 within a day."
    assert manage(*finding["do"].split("`")[3].removeprefix("manage.py ").split(), "--json").json == {"redriven": 100}
    assert told() == []


def test_of_many_pauses_a_few_are_named() -> None:
    pauses = tuple(Pause("tenant", f"t{index}", 1, 9000.0) for index in range(100))

    assert len(doctor.examine(WELL, with_("held", pauses=pauses))) == 5


@pytest.mark.usefixtures("running")
def test_a_forgotten_pause_is_named_and_is_no_fault_of_the_pool() -> None:
    job = lifecycle.submit()
    shift(job, eligible_at=2 * 3600)
    assert manage("set_tenant", job.tenant.name, "--pause").code == 0

    (finding,) = told()
    assert finding["what"] == f"The tenant {job.tenant.name} is paused and has 1 job waiting, the oldest for 2 h."

    assert manage(*finding["do"].split("`")[1].removeprefix("manage.py ").split()).code == 0
    assert [finding["what"][:16] for finding in told()] == ["1 job is waiting"]


@pytest.mark.usefixtures("running")
def test_a_tenant_at_its_limit_is_named() -> None:
    job = lifecycle.submit()
    assert told() == []
    manage("set_tenant", job.tenant.name, "--max-queued", "1")

    (finding,) = told()
    assert "as many jobs queued as it may (1)" in finding["what"]


@pytest.mark.usefixtures("running")
def test_people_read_what_why_and_do() -> None:
    shift(lifecycle.submit(), eligible_at=3600)

    out = manage("doctor").out
    assert "WARNING: 1 job is waiting for more than 60 s to start, the oldest for 60 min." in out
    assert "  why: They are not handed to the workers." in out
    assert "  do:  See to the publisher" in out


def test_without_any_server_it_names_each_and_still_answers() -> None:
    """A process of its own, whose every server is a port where nobody listens."""
    nowhere = {
        "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "BROKER_URL": "redis://127.0.0.1:1/1",
        "S3_ENDPOINT_URL": "http://127.0.0.1:1",
        "S3_ACCESS_KEY_ID": "none",
        "S3_SECRET_ACCESS_KEY": "none",
    }
    ended = subprocess.run(
        [sys.executable, "manage.py", "doctor", "--json"],
        cwd=ROOT,
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ended.returncode == 1
    assert ended.stderr == ""
    findings = json.loads(ended.stdout)["findings"]
    assert {finding["what"].partition(" (")[0] for finding in findings} == {
        f"The {part} does not answer" for part in ("database", "broker", "cache", "storage")
    }

"""Dead letters: listed as a person looks for them, and started anew without touching anything else."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import Count
from django.test.utils import CaptureQueriesContext

from jobs import dead_letters, transitions
from jobs.dead_letters import PAGE, Selection
from jobs.models import Job, JobEvent
from jobs.states import State
from tenants.models import Tenant
from tests import lifecycle
from tests.commands import assert_refused, manage
from tests.factories import LONG_AGO, make_job, make_tenant

pytestmark = pytest.mark.django_db(transaction=True)  # a command closes its connections


def dead(host: str = "example.com:443", code: str = "http_404", *, age: int = 0, **values: Any) -> Job:
    """A failed job of `acme`; `age` in seconds orders them."""
    return make_job(
        values.pop("tenant", None) or Tenant.objects.get_or_create(name="acme")[0],
        state=State.FAILED,
        host=host,
        error_code=code,
        finished_at=LONG_AGO - timedelta(seconds=age),
        **values,
    )


@pytest.fixture
def crowd() -> int:
    """More dead letters than two pages hold, of three hosts and two codes, all of one moment but a few."""
    count = 2 * PAGE + 7
    tenant = make_tenant("crowded")
    fields = {"deadline_seconds": 30, "max_attempts": 5, "max_bytes": 1000, "url": "http://a.example/"}
    Job.objects.bulk_create(
        Job(
            tenant=tenant,
            state=State.FAILED,
            host=f"{'abc'[number % 3]}.example:80",
            error_code=("http_401", "dns_error")[number % 2],
            attempts=5,
            claim_no=5,
            finished_at=LONG_AGO + timedelta(seconds=number // 400),
            **fields,
        )
        for number in range(count)
    )
    return count


def test_the_newest_are_listed_first_with_what_a_person_needs() -> None:
    old, new = dead(age=60), dead(age=1, error_detail="Gone.", error_http_status=404, url="https://example.com/x")

    listed = manage("dead_letters", "--json")

    assert listed.code == 0
    assert [item["id"] for item in listed.json["items"]] == [str(new.id), str(old.id)]
    assert listed.json["items"][0] == {
        "id": str(new.id),
        "tenant": "acme",
        "host": "example.com:443",
        "code": "http_404",
        "detail": "Gone.",
        "http_status": 404,
        "attempts": 1,
        "url": "https://example.com/x",
        "finished_at": "2025-12-31T23:59:59.000000Z",
    }


def test_only_failed_jobs_are_dead_letters() -> None:
    tenant = make_tenant()
    for state in set(State) - {State.FAILED}:
        make_job(tenant, state=state)

    assert manage("dead_letters", "--json").json == {"items": []}
    assert manage("dead_letters", "--group", "--json").json == {"groups": []}
    assert manage("dead_letters").out == "No dead letters.\n"


def test_a_hundred_failures_for_one_reason_are_one_group() -> None:
    for age in range(3):
        dead("busy.example:443", "http_401", age=age)
    dead("busy.example:443", "dns_error")
    dead("other.example:80", "http_401")

    groups = manage("dead_letters", "--group", "--json").json["groups"]

    assert groups[0] == {
        "host": "busy.example:443",
        "code": "http_401",
        "count": 3,
        "last_at": "2026-01-01T00:00:00.000000Z",
    }
    assert [group["count"] for group in groups] == [3, 1, 1]
    assert len(manage("dead_letters", "--group", "--limit", "1", "--json").json["groups"]) == 1


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--host", "example.com"], {"http", "https"}),
        (["--host", "EXAMPLE.com:443"], {"https"}),
        (["--host", "example.com:8080"], {"odd"}),
        (["--code", "dns_error"], {"other"}),
        (["--tenant", "bolt"], {"other"}),
        (["--tenant", "bolt", "--code", "http_404"], set()),
        (["--limit", "1"], {"http"}),
    ],
)
def test_filters_narrow_the_list(arguments: list[str], found: set[str]) -> None:
    jobs = {
        "http": dead("example.com:80"),
        "https": dead("example.com:443", age=1),
        "odd": dead("example.com:8080", age=2),
        "other": dead("example.org:443", "dns_error", age=3, tenant=make_tenant("bolt")),
    }

    items = manage("dead_letters", *arguments, "--json").json["items"]

    assert {item["id"] for item in items} == {str(jobs[name].id) for name in found}


def test_people_get_a_table_that_no_target_can_garble() -> None:
    job = dead(error_detail="bad\x1b[2Jnews\n" + "x" * 100)

    lines = manage("dead_letters").out.splitlines()

    assert len(lines) == 2
    assert str(job.id) in lines[1]
    assert "\x1b" not in lines[1]
    assert lines[1].endswith("…")


@pytest.mark.parametrize("command", [["dead_letters"], ["redrive"]])
def test_what_there_is_not_is_refused(command: list[str]) -> None:
    job = dead()
    assert_refused(manage(*command, "--tenant", "nobody"), "no tenant named 'nobody'")
    assert_refused(manage(*command, "--host", "a/b"), "Must be a host")
    assert_refused(manage(*command, "--code", "http_4o4"), "is no error code")
    job.refresh_from_db()
    assert job.state == State.FAILED


@pytest.mark.parametrize("limit", ["0", "-1", "x", "100001", "1_0"])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    assert_refused(manage("dead_letters", f"--limit={limit}"), "whole number")


def test_a_redriven_job_has_a_fresh_set_of_attempts_and_its_claims_go_on() -> None:
    job = lifecycle.submit(max_attempts=1)
    assert lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job)))

    assert manage("redrive", "--id", str(job.id), "--json").json == {"redriven": 1}

    job.refresh_from_db()
    assert (job.state, job.attempts, job.claim_no, job.finished_at) == (State.QUEUED, 0, 1, None)
    assert JobEvent.objects.filter(job=job).latest("seq").reason == "redriven"
    assert lifecycle.finish(lifecycle.success(lifecycle.claim_now(job)))


def test_a_redrive_starts_what_is_meant_and_leaves_the_rest() -> None:
    tenant = make_tenant()
    others = [make_job(tenant, state=state, host="a.example:80") for state in set(State) - {State.FAILED}]
    meant, other_host, other_code = dead("a.example:80"), dead("b.example:80"), dead("a.example:80", "dns_error")

    assert manage("redrive", "--host", "a.example", "--code", "http_404", "--json").json == {"redriven": 1}

    for job in (*others, meant, other_host, other_code):
        before = job.state
        job.refresh_from_db()
        assert job.state == (State.QUEUED if job == meant else before)
    assert manage("redrive", "--host", "a.example", "--code", "http_404", "--json").json == {"redriven": 0}


def test_one_id_that_did_not_fail_stops_them_all() -> None:
    job, running = dead(), make_job(make_tenant(), state=State.RUNNING)
    unknown = uuid.uuid4()

    assert_refused(manage("redrive", "--id", str(job.id), str(running.id)), f"{running.id} is running")
    assert_refused(manage("redrive", "--id", str(job.id), "--id", str(unknown)), f"no job with the id {unknown}")
    assert_refused(manage("redrive", "--id", "7"), "not a job's id")

    job.refresh_from_db()
    assert job.state == State.FAILED


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Say which"),
        (["--all", "--host", "a.example"], "not several"),
        (["--all", "--id", str(uuid.uuid4())], "not several"),
        (["--id", str(uuid.uuid4()), "--code", "http_404"], "not several"),
    ],
)
def test_a_redrive_must_say_which_in_one_way(arguments: list[str], said: str) -> None:
    assert_refused(manage("redrive", *arguments), said)


def test_all_are_redriven_in_pages(crowd: int) -> None:
    pages: list[int] = []
    with CaptureQueriesContext(connection) as queries:
        assert dead_letters.redrive(Selection().jobs, pages.append) == crowd

    assert pages == [PAGE, PAGE, 7]
    assert len(queries) <= 8
    assert not Job.objects.filter(state=State.FAILED).exists()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_where_a_person_watches_and_nowhere_else(crowd: int) -> None:
    terminal, quiet, out = Terminal(), StringIO(), StringIO()

    call_command("redrive", "--host", "a.example", "--json", "--force-color", stdout=out, stderr=terminal)
    call_command("redrive", "--host", "b.example", "--json", stdout=out, stderr=quiet)

    third = crowd // 3 + (crowd % 3 > 0)
    drawn = terminal.getvalue().split("\r")
    assert drawn[0] == ""
    assert drawn[1] == f"redriving [{'-' * 30}] 0 of {third:,}"
    assert drawn[-1] == f"redriving [{'#' * 30}] {third:,} of {third:,}\n"
    assert not any("\n" in line or "\x1b" in line for line in drawn[:-1])
    assert quiet.getvalue() == ""
    assert len(out.getvalue().splitlines()) == 2


def in_threads(count: int) -> list[int]:
    """How many each of several redrives moved that began at once."""
    begin, moved = threading.Barrier(count), []

    def work() -> None:
        try:
            begin.wait(10)
            moved.append(dead_letters.redrive(Selection().jobs))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(moved) == count
    return moved


def test_of_several_redrives_at_once_each_job_is_moved_by_one(crowd: int) -> None:
    moved = in_threads(3)

    left = Job.objects.filter(state=State.FAILED).count()
    assert sum(moved) + left == crowd
    starts = JobEvent.objects.filter(reason="redriven").values("job").annotate(times=Count("seq"))
    assert {start["times"] for start in starts} == {1}
    assert left == 0


def test_a_job_that_fails_again_meanwhile_is_not_redriven_for_ever(crowd: int) -> None:
    def fail_again(looked_at: int) -> None:
        for job in Job.objects.filter(state=State.QUEUED, host="a.example:80")[:3]:
            assert lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job), "http_401"))

    assert dead_letters.redrive(Selection().jobs, fail_again) == crowd
    assert Job.objects.filter(state=State.FAILED).count() == 9


def test_a_job_cancelled_since_it_was_looked_at_is_not_started() -> None:
    """As a page of a redrive meets it when its caller retried and then cancelled the job meanwhile."""
    cancelled, failed = make_job(make_tenant(), state=State.CANCELLED), dead()

    assert transitions.restart([cancelled.id, failed.id], reason="redriven", states=[State.FAILED]) == [failed.id]


def test_a_job_that_somebody_holds_is_left_to_them() -> None:
    held, free = dead(), dead(age=1)
    holding, over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Job.objects.select_for_update().get(pk=held.pk)
                holding.set()
                over.wait(10)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holding.wait(10)
        assert dead_letters.redrive(Selection().jobs) == 1
    finally:
        over.set()
        thread.join(10)
    held.refresh_from_db()
    free.refresh_from_db()
    assert (held.state, free.state) == (State.FAILED, State.QUEUED)

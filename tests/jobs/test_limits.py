"""What a tenant may submit: its rate, and how many of its jobs may be queued."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from core.quota import NO_LIMIT
from jobs import admission, counters, refusals, transitions
from jobs.admission import EXACT, PRECISION, SHARES, Ledger
from jobs.models import Job
from jobs.refusals import Tally
from jobs.states import State
from tenants import throttle
from tenants.models import Tenant
from tests import lifecycle
from tests.commands import manage
from tests.factories import client_of, make_job, make_tenant

JOBS = "/api/v1/jobs"


@pytest.fixture(autouse=True)
def _own_knowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test's process learned does not pass to the next."""
    monkeypatch.setattr(admission, "_ledger", Ledger())
    monkeypatch.setattr(refusals, "_tally", Tally())


def limited(**limits: int) -> tuple[Tenant, Client]:
    tenant = make_tenant()
    Tenant.objects.filter(pk=tenant.pk).update(**limits)
    tenant.refresh_from_db()
    return tenant, client_of(tenant)


def submit(client: Client, **headers: str) -> Any:
    document = {"url": "https://example.com/"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(JOBS, document, content_type="application/json", headers=named)


def refused(answer: Any, code: str) -> Any:
    assert (answer.status_code, answer.json()["code"]) == (429, code)
    assert answer["Content-Type"] == "application/problem+json"
    assert int(answer["Retry-After"]) >= 1
    return answer


def in_threads(count: int, act: Callable[[int], Any]) -> list[Any]:
    """Run `act` in real threads that start together, each with a database connection of its own."""
    barrier = threading.Barrier(count)

    def run(index: int) -> Any:
        try:
            barrier.wait()
            return act(index)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def use_up(tenant: Tenant) -> None:
    """Leave a debt of a minute: however slow the machine, no job passes before the test has ended."""
    tenant.refresh_from_db()
    assert tenant.submit_rate is not None
    assert throttle.shared().take(tenant.id, tenant.submit_rate, 60 * tenant.submit_rate) == 0.0


# --- the rate -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_over_the_rate_a_post_is_refused_and_told_when_to_come_again() -> None:
    tenant, client = limited(submit_rate=2)
    use_up(tenant)
    answer = refused(submit(client), "submit_rate_exceeded")
    wait = int(answer["Retry-After"])
    assert 30 < wait <= 60
    assert answer["RateLimit"] == f'"submit";r=0;t={wait}'
    assert "2 jobs a second" in answer.json()["detail"]
    assert Job.objects.count() == 0


@pytest.mark.django_db
def test_every_answer_tells_the_rate_and_what_is_left_of_it() -> None:
    _, client = limited(submit_rate=50)
    answer = submit(client)
    assert answer["RateLimit-Policy"] == '"submit";q=50;w=1'
    assert answer["RateLimit"] in ('"submit";r=49;t=1', '"submit";r=50;t=1')  # the second by a slow machine
    for other in (client.get(JOBS), client.get(f"{JOBS}/{uuid.uuid4()}"), client.get(f"{JOBS}?limit=0")):
        assert other["RateLimit-Policy"] == '"submit";q=50;w=1'
        assert other["RateLimit"].startswith('"submit";r=')


@pytest.mark.django_db
def test_a_read_that_the_cache_answers_tells_the_rate_too() -> None:
    _, client = limited(submit_rate=50)
    path = submit(client)["Location"]
    for _ in range(3):
        assert client.get(path)["RateLimit-Policy"] == '"submit";q=50;w=1'


@pytest.mark.django_db
@pytest.mark.parametrize("path", [JOBS, "/healthz", "/nowhere", "/api/v1/schema"])
def test_answers_to_nobody_in_particular_have_the_headers_too(path: str) -> None:
    assert Client().get(path)["RateLimit-Policy"] == f'"submit";q={NO_LIMIT};w=1'


@pytest.mark.django_db
def test_a_tenant_without_a_limit_is_told_the_highest_there_is(tenant: Tenant, api: Client) -> None:
    answer = submit(api)
    assert answer["RateLimit-Policy"] == f'"submit";q={NO_LIMIT};w=1'
    assert answer["RateLimit"] == f'"submit";r={NO_LIMIT};t=1'


@pytest.mark.django_db
def test_reading_uses_nothing_up() -> None:
    _, client = limited(submit_rate=1)
    for _ in range(5):
        assert client.get(JOBS)["RateLimit"] == '"submit";r=1;t=1'
    assert submit(client).status_code == 202


@pytest.mark.django_db
def test_what_is_wrong_with_a_job_is_told_before_the_rate_counts() -> None:
    _, client = limited(submit_rate=1)
    assert client.post(JOBS, {"url": "nope"}, content_type="application/json").status_code == 422
    assert submit(client).status_code == 202


@pytest.mark.django_db
def test_a_refused_post_costs_no_query_beside_the_key_and_its_count() -> None:
    tenant, client = limited(submit_rate=1)
    use_up(tenant)
    refused(submit(client), "submit_rate_exceeded")
    with CaptureQueriesContext(connection) as queries:
        refused(submit(client), "submit_rate_exceeded")
    assert len(queries) == 1, queries.captured_queries


@pytest.mark.django_db(transaction=True)
def test_a_rate_is_changed_by_a_command_and_holds_at_once() -> None:
    tenant, client = limited(submit_rate=1)
    use_up(tenant)
    refused(submit(client), "submit_rate_exceeded")
    assert manage("set_tenant", tenant.name, "--no-limit", "submit-rate").code == 0
    assert [submit(client).status_code for _ in range(5)] == [202] * 5


# --- how many may be queued -----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_at_the_limit_a_post_is_refused_until_a_job_has_started() -> None:
    _, client = limited(max_queued=2)
    first = submit(client)
    submit(client)
    answer = refused(submit(client), "too_many_queued")
    assert "At most 2 jobs" in answer.json()["detail"]
    lifecycle.claim_now(Job.objects.get(pk=first.json()["id"]))
    _forget()
    assert submit(client).status_code == 202


def _forget() -> None:
    """Let the time pass for which a refusal is remembered: twenty times as long as it took to count two rows."""
    for seen in admission._ledger._seen.values():
        seen.rested = 0.0


@pytest.mark.django_db
def test_what_others_have_queued_does_not_count() -> None:
    make_job(make_tenant())
    tenant, client = limited(max_queued=1)
    make_job(tenant, state=State.RUNNING)
    assert submit(client).status_code == 202


@pytest.mark.django_db
def test_jobs_that_wait_for_their_time_count() -> None:
    tenant, client = limited(max_queued=1)
    make_job(tenant, eligible_at=Now() + timedelta(days=1))
    refused(submit(client), "too_many_queued")


@pytest.mark.django_db
@pytest.mark.parametrize("limit", [1, EXACT + 1])
def test_a_replay_gets_its_receipt_at_the_limit(limit: int) -> None:
    tenant, client = limited(max_queued=limit)
    first = submit(client, Idempotency_Key="k")
    Job.objects.bulk_create(_queued(tenant) for _ in range(limit - 1))
    again = submit(client, Idempotency_Key="k")
    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")
    assert again.json() == first.json()


def _queued(tenant: Tenant) -> Job:
    return Job(
        tenant=tenant,
        url="http://example.com/",
        host="example.com:80",
        deadline_seconds=30,
        max_attempts=5,
        max_bytes=1000,
    )


@pytest.mark.django_db
def test_a_refusal_is_not_remembered_under_its_idempotency_key() -> None:
    tenant, client = limited(max_queued=1)
    job = make_job(tenant)
    refused(submit(client, Idempotency_Key="k"), "too_many_queued")
    transitions.request_cancel(job.id, tenant.id)
    _forget()
    assert submit(client, Idempotency_Key="k").status_code == 202


@pytest.mark.django_db
def test_a_retry_needs_room_and_a_place_in_the_rate_as_a_new_job_does() -> None:
    tenant, client = limited(max_queued=1)
    ended = make_job(tenant, state=State.FAILED)
    waiting = make_job(tenant)
    refused(client.post(f"{JOBS}/{ended.id}/retry"), "too_many_queued")
    ended.refresh_from_db()
    assert ended.state == State.FAILED
    transitions.request_cancel(waiting.id, tenant.id)
    _forget()
    assert client.post(f"{JOBS}/{ended.id}/retry").status_code == 202
    Tenant.objects.filter(pk=tenant.pk).update(submit_rate=1)
    use_up(tenant)
    refused(client.post(f"{JOBS}/{waiting.id}/retry"), "submit_rate_exceeded")


@pytest.mark.django_db
def test_a_retry_that_cannot_be_is_told_so_whatever_the_limits() -> None:
    tenant, client = limited(max_queued=1, submit_rate=1)
    job = make_job(tenant)
    assert client.post(f"{JOBS}/{job.id}/retry").status_code == 409
    assert client.post(f"{JOBS}/{uuid.uuid4()}/retry").status_code == 404


@pytest.mark.django_db
def test_what_the_service_gives_back_is_never_refused() -> None:
    tenant, _ = limited(max_queued=1)
    claimed = lifecycle.claim_now(lifecycle.submit(tenant))
    make_job(tenant)
    assert lifecycle.finish(lifecycle.failure(claimed, "http_503", again_after=1.0))
    assert Job.objects.filter(tenant=tenant, state=State.QUEUED).count() == 2


@pytest.mark.django_db
def test_a_paused_tenant_that_is_full_is_told_that_waiting_does_not_help() -> None:
    _, client = limited(max_queued=1, paused=True)
    assert submit(client).status_code == 202
    answer = refused(submit(client), "too_many_queued")
    assert "paused" in answer.json()["detail"]
    assert answer["Retry-After"] == "60"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("with_keys", [False, True])
def test_twenty_posts_at_once_never_pass_a_small_limit(with_keys: bool) -> None:
    tenant, client = limited(max_queued=7)
    keys = [{"Idempotency_Key": str(index)} if with_keys else {} for index in range(20)]
    answers = in_threads(20, lambda index: submit(client, **keys[index]))
    assert Counter(answer.status_code for answer in answers) == {202: 7, 429: 13}
    assert Job.objects.filter(tenant=tenant).count() == 7


@pytest.mark.django_db(transaction=True)
def test_twenty_retries_at_once_never_pass_a_small_limit() -> None:
    tenant, client = limited(max_queued=5)
    jobs = [make_job(tenant, state=State.FAILED) for _ in range(20)]
    in_threads(20, lambda index: client.post(f"{JOBS}/{jobs[index].id}/retry"))
    assert Job.objects.filter(tenant=tenant, state=State.QUEUED).count() == 5


@pytest.mark.django_db(transaction=True)
def test_a_tenant_that_waits_for_its_turn_holds_up_no_other() -> None:
    tenant, _ = limited(max_queued=5)
    _, other = limited(max_queued=5)
    with transaction.atomic():
        admission.check_room(tenant, 1)
        [answer] = in_threads(1, lambda _: submit(other))
    assert answer.status_code == 202


# --- limits too high to count each time -----------------------------------------------------------------------------


class Table:
    """Stands for the rows that several processes look at; the time is the test's own."""

    def __init__(self, queued: int = 0) -> None:
        self.queued, self.looks, self.now, self.seconds = queued, 0, 0.0, 0.0

    def look(self, _: uuid.UUID, limit: int) -> int:
        self.looks += 1
        self.now += self.seconds
        return min(self.queued, limit)

    def process(self) -> Ledger:
        return Ledger(self.look, clock=lambda: self.now)


TENANT = uuid.UUID(int=1)


@given(
    limit=st.integers(EXACT + 1, 50_000),
    order=st.lists(st.tuples(st.integers(0, SHARES - 1), st.integers(1, 400)), max_size=200),
    pause=st.floats(0, 0.2),
)
def test_many_processes_pass_a_high_limit_by_no_more_than_their_allowances(
    limit: int, order: list[tuple[int, int]], pause: float
) -> None:
    table = Table(queued=limit - limit // 20)
    processes = [table.process() for _ in range(SHARES)]
    most = max(limit // 20 // SHARES, limit // PRECISION, 1) * (SHARES - 1)
    for index, count in order:
        table.now += pause
        for _ in range(count):
            table.queued += processes[index].admit(TENANT, limit, 1)
    assert table.queued <= limit + most


def test_one_process_fills_a_high_limit_to_the_last_job_and_no_further() -> None:
    table, limit = Table(), 20_000
    process = table.process()
    while process.admit(TENANT, limit, 1):
        table.queued += 1
    assert table.queued == limit
    assert table.looks < 400


def test_no_more_is_looked_at_than_a_thousand_jobs_for_each_job() -> None:
    """However long the queue is: looks times the rows each counts, over what they admitted."""
    table, limit = Table(queued=999_000), 1_000_000
    process = table.process()
    for _ in range(1000):
        assert process.admit(TENANT, limit, 1)
    assert table.looks <= 2


def test_an_allowance_ends_within_a_second() -> None:
    table = Table()
    process = table.process()
    assert process.admit(TENANT, 100_000, 1)
    table.queued, table.now = 100_000, admission.ALLOWED_SECONDS
    assert not process.admit(TENANT, 100_000, 1)


def test_a_refusal_is_remembered_for_as_long_as_the_look_was_dear() -> None:
    table = Table(queued=5000)
    table.seconds = 0.01
    process = table.process()
    for _ in range(50):
        assert not process.admit(TENANT, 5000, 1)
    assert table.looks == 1
    table.queued, table.now = 0, table.now + admission.REST * 0.01
    assert process.admit(TENANT, 5000, 1)


def test_a_limit_that_was_raised_is_looked_at_at_once() -> None:
    table = Table(queued=5000)
    table.seconds = 1.0
    process = table.process()
    assert not process.admit(TENANT, 5000, 1)
    assert process.admit(TENANT, 6000, 1)


def test_a_batch_that_finds_no_room_leaves_the_room_to_smaller_ones() -> None:
    table = Table(queued=4990)
    table.seconds = 0.01
    process = table.process()
    assert not process.admit(TENANT, 5000, 20)
    assert process.admit(TENANT, 5000, 10)


def test_threads_that_find_nothing_known_look_once() -> None:
    began, looks = threading.Event(), []

    def look(_: uuid.UUID, limit: int) -> int:
        looks.append(limit)
        began.wait(0.2)
        return 0

    process = Ledger(look)
    assert all(in_threads(20, lambda _: process.admit(TENANT, 100_000, 1)))
    assert len(looks) == 1


@pytest.mark.django_db
def test_a_look_stops_at_the_limit() -> None:
    tenant = make_tenant()
    Job.objects.bulk_create(_queued(tenant) for _ in range(20))
    assert admission.count_queued(tenant.id, 5) == 5
    assert admission.count_queued(tenant.id, 50) == 20


# --- counting refusals ----------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_refusals_are_counted_by_the_limit_that_was_met() -> None:
    hasty, fast = limited(submit_rate=1)
    use_up(hasty)
    tenant, full = limited(max_queued=1)
    make_job(tenant)
    submit(fast)
    refusals._tally._written_at = float("-inf")
    submit(full)
    told = {reason: counters.total(name) for reason, name in counters.REFUSED.items()}
    assert told == {"submit_rate": 1, "max_queued": 1}


@pytest.mark.django_db
def test_a_storm_of_refusals_writes_once_a_second() -> None:
    now = [0.0]
    tally = Tally(clock=lambda: now[0])
    with CaptureQueriesContext(connection) as queries:
        for _ in range(1000):
            tally.note("submit_rate", 1)
    assert len(queries) == 1
    now[0] = refusals.NOTE_SECONDS
    tally.note("submit_rate", 1)
    assert counters.total(counters.REFUSED["submit_rate"]) == 1001

"""GET /events: every end once, in order, whoever commits when."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs import publisher, transitions
from jobs.models import FinishEvent, Job
from jobs.states import State
from tenants.models import Scope, Tenant
from tests import lifecycle
from tests.factories import client_of, make_job, make_tenant

EVENTS = "/api/v1/events"


def tell() -> int:
    """The publisher's pass over ended jobs, to a bus that takes all."""
    return publisher.publish_finish_events(1000, lambda messages: None)


def feed(client: Client, **parameters: Any) -> dict[str, Any]:
    answer = client.get(EVENTS, parameters)
    assert answer.status_code == 200, answer.content
    document: dict[str, Any] = answer.json()
    assert set(document) == {"items", "next_after"}
    return document


def test_ended_jobs_come_in_order_with_the_whole_job(client: Client, tenant: Tenant) -> None:
    jobs = [make_job(tenant, state=state) for state in (State.FAILED, State.SUCCEEDED, State.CANCELLED)]
    make_job(tenant)
    make_job(tenant, state=State.RUNNING)
    make_job(make_tenant(), state=State.FAILED)
    assert feed(client)["items"] == [], "not told yet"
    assert tell() == 4
    document = feed(client)
    assert [item["job"]["id"] for item in document["items"]] == [str(job.id) for job in jobs]
    assert {item["type"] for item in document["items"]} == {"job.finished"}
    for item in document["items"]:
        assert item["job"] == client.get(f"/api/v1/jobs/{item['job']['id']}").json()
        assert item["at"] == item["job"]["finished_at"]
    seqs = [item["seq"] for item in document["items"]]
    assert seqs == sorted(seqs)
    assert document["next_after"] == seqs[-1]
    assert feed(client, type="job.finished") == document


def test_next_after_goes_on_and_is_good_again_at_the_end(client: Client, tenant: Tenant) -> None:
    jobs = [str(make_job(tenant, state=State.FAILED).id) for _ in range(5)]
    tell()
    seen, after = [], 0
    for size in (2, 2, 1, 0, 0):
        document = feed(client, after=after, limit=2)
        assert len(document["items"]) == size
        seen += [item["job"]["id"] for item in document["items"]]
        after = document["next_after"]
    assert seen == jobs
    late = make_job(tenant, state=State.FAILED)
    tell()
    assert [item["job"]["id"] for item in feed(client, after=after)["items"]] == [str(late.id)]


def test_an_empty_feed_begins_at_nothing(client: Client) -> None:
    assert feed(client) == {"items": [], "next_after": 0}
    assert feed(client, after=2**63 - 1) == {"items": [], "next_after": 2**63 - 1}


def test_a_retried_job_comes_again_with_its_next_end(client: Client, tenant: Tenant) -> None:
    job = lifecycle.submit(tenant)
    for _ in range(2):
        transitions.request_cancel(job.id, tenant.id)
        assert tell() == 1
        transitions.retry(job.id, tenant.id)
    items = feed(client)["items"]
    assert [item["job"]["id"] for item in items] == [str(job.id)] * 2
    assert {item["job"]["status"] for item in items} == {"queued"}, "as it is now"
    assert items[0]["at"] <= items[1]["at"]


def test_telling_twice_numbers_once(client: Client, tenant: Tenant) -> None:
    make_job(tenant, state=State.FAILED)
    assert (tell(), tell()) == (1, 0)
    assert FinishEvent.objects.count() == 1


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("after=-1", "after"),
        ("after=abc", "after"),
        ("after=", "after"),
        ("after=1.0", "after"),
        ("after=9223372036854775808", "after"),
        ("after=%D9%A3", "after"),
        ("after=" + "9" * 5000, "after"),
        ("after=1&after=2", "after"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("type=job.started", "type"),
        ("type=", "type"),
        ("cursor=x", "cursor"),
    ],
)
def test_wrong_parameters_are_named(client: Client, query: str, name: str) -> None:
    answer = client.get(f"{EVENTS}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert [problem["pointer"] for problem in answer.json()["errors"]] == [name]


def test_it_needs_the_scope_to_read(tenant: Tenant) -> None:
    assert client_of(tenant, scopes=[Scope.JOBS_WRITE]).get(EVENTS).status_code == 403


def test_it_takes_as_many_queries_for_a_hundred_as_for_one(client: Client, tenant: Tenant) -> None:
    counts: list[int] = []
    for _ in range(2):
        make_job(tenant, state=State.FAILED)
        for _ in range(len(counts) * 99):
            make_job(tenant, state=State.SUCCEEDED)
        tell()
        client.get(EVENTS)
        with CaptureQueriesContext(connection) as queries:
            feed(client)
        counts.append(len([query for query in queries if '"jobs_' in query["sql"]]))
    assert counts == [2, 2]


def test_the_ends_of_others_cost_nothing(client: Client, tenant: Tenant) -> None:
    other = make_tenant()
    job = make_job(tenant, state=State.FAILED)
    with connection.cursor() as cursor:
        insert = "INSERT INTO jobs_finishevent (tenant_id, job_id, at) SELECT %s, %s, now() FROM generate_series(1, %s)"
        for owner, count in ((other.id, 5000), (tenant.id, 1), (other.id, 5000)):
            cursor.execute(insert, [owner, job.id, count])
        cursor.execute("ANALYZE jobs_finishevent")
        cursor.execute(
            "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM jobs_finishevent WHERE tenant_id = %s AND seq > 0 "
            "ORDER BY seq LIMIT 100",
            [tenant.id],
        )
        plan = cursor.fetchone()[0]
    assert "event_of_tenant" in str(plan)
    assert "Sort" not in str(plan)
    assert "Seq Scan" not in str(plan)
    assert len(feed(client)["items"]) == 1


class Crowd:
    """Writers that end jobs and commit out of order, publishers that number the ends, and a reader that follows."""

    def __init__(self, client: Client, tenant: Tenant, *, writers: int, each: int) -> None:
        self.seen: list[str] = []
        self._client, self._tenant, self._each = client, tenant, each
        self._written, self._numbered = threading.Event(), threading.Event()
        self._writers = [self._thread(lambda seed=seed: self._write(seed)) for seed in range(writers)]
        self._publishers = [self._thread(self._number) for _ in range(2)]  # as while one takes over from another
        self._reader = self._thread(self._read)

    def run(self) -> None:
        for thread in [*self._writers, *self._publishers, self._reader]:
            thread.start()
        for threads, end in ((self._writers, self._written), (self._publishers, self._numbered)):
            for thread in threads:
                thread.join()
            end.set()
        self._reader.join()

    def _thread(self, work: Any) -> threading.Thread:
        def run() -> None:
            try:
                work()
            finally:
                connection.close()

        return threading.Thread(target=run)

    def _write(self, seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(self._each):
            job = make_job(self._tenant)
            with transaction.atomic():
                Job.objects.filter(pk=job.pk).update(state=State.CANCELLED, finished_at=job.created_at)
                time.sleep(draw.random() * 0.02)  # others, who ended theirs later, commit before

    def _number(self) -> None:
        while not self._written.is_set():
            tell()
        tell()

    def _read(self) -> None:
        after, last = 0, False
        while not last:
            last = self._numbered.is_set()
            document = feed(self._client, after=after, limit=1000)
            self.seen += [item["job"]["id"] for item in document["items"]]
            after = document["next_after"]


@pytest.mark.django_db(transaction=True)
def test_a_reader_misses_nothing_while_eight_writers_commit_out_of_order(client: Client, tenant: Tenant) -> None:
    crowd = Crowd(client, tenant, writers=8, each=12)
    crowd.run()
    assert len(crowd.seen) == 96
    assert set(crowd.seen) == {str(pk) for pk in Job.objects.values_list("pk", flat=True)}


@pytest.mark.django_db(transaction=True)
def test_no_number_is_committed_after_a_higher_one(tenant: Tenant) -> None:
    """Two publishers: the second waits with its numbers until the first has committed its own."""
    for _ in range(2):
        make_job(tenant, state=State.FAILED)
    first, second = (str(pk) for pk in Job.objects.order_by("pk").values_list("pk", flat=True))
    marked, go_on = threading.Event(), threading.Event()

    def number(job_id: str, *, waits: bool) -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(publisher._NUMBERS_ALONE)
                cursor.execute(publisher._MARK_FINISHED, [[job_id]])
                if waits:
                    marked.set()
                    assert go_on.wait(20)
        finally:
            connection.close()

    slow = threading.Thread(target=lambda: number(first, waits=True))
    quick = threading.Thread(target=lambda: number(second, waits=False))
    slow.start()
    assert marked.wait(20)
    quick.start()
    quick.join(0.3)
    assert quick.is_alive()
    assert FinishEvent.objects.count() == 0
    go_on.set()
    slow.join()
    quick.join()
    assert [str(pk) for pk in FinishEvent.objects.order_by("seq").values_list("job_id", flat=True)] == [first, second]


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_stays_open_holds_up_no_other_end(client: Client, tenant: Tenant) -> None:
    slow, quick = make_job(tenant), make_job(tenant)
    opened, close = threading.Event(), threading.Event()

    def stay_open() -> None:
        try:
            with transaction.atomic():
                Job.objects.filter(pk=slow.pk).update(state=State.CANCELLED, finished_at=slow.created_at)
                opened.set()
                assert close.wait(20)
        finally:
            connection.close()

    thread = threading.Thread(target=stay_open)
    thread.start()
    assert opened.wait(20)
    transitions.request_cancel(quick.id, tenant.id)
    tell()
    first = feed(client)
    close.set()
    thread.join()
    tell()
    assert [item["job"]["id"] for item in first["items"]] == [str(quick.id)]
    assert [item["job"]["id"] for item in feed(client, after=first["next_after"])["items"]] == [str(slow.id)]

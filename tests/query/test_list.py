"""GET /jobs: filters, cursors, order."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.ids import first_id, new_id
from jobs.models import Job
from jobs.states import Priority, State
from query import selectors
from tenants.models import Tenant
from tests.factories import client_of, make_job, make_tenant

JOBS = "/api/v1/jobs"


def page(client: Client, **parameters: Any) -> dict[str, Any]:
    answer = client.get(JOBS, parameters)
    assert answer.status_code == 200, answer.content
    document: dict[str, Any] = answer.json()
    assert set(document) == {"items", "next_cursor"}
    return document


def ids(client: Client, **parameters: Any) -> list[str]:
    return [item["id"] for item in page(client, **parameters)["items"]]


def refused(client: Client, query: str) -> dict[str, Any]:
    answer = client.get(f"{JOBS}?{query}")
    assert answer.status_code == 400, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    return document


def test_newest_first_and_only_the_tenants_own(client: Client, tenant: Tenant) -> None:
    first, second = make_job(tenant), make_job(tenant)
    make_job(make_tenant())
    document = page(client)
    assert [item["id"] for item in document["items"]] == [str(second.id), str(first.id)]
    assert document["next_cursor"] is None
    assert document["items"][0] == client.get(f"{JOBS}/{second.id}").json()


def test_an_empty_list(client: Client) -> None:
    assert page(client) == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_following_the_cursor_shows_every_job_once_while_new_ones_arrive(
    client: Client, tenant: Tenant, limit: int
) -> None:
    expected = [str(make_job(tenant).id) for _ in range(7)][::-1]
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        document = page(client, limit=limit, **cursor)
        seen += [item["id"] for item in document["items"]]
        if document["next_cursor"] is None:
            break
        assert len(document["items"]) == limit
        cursor = {"cursor": document["next_cursor"]}
        make_job(tenant)
    assert seen == expected


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({"status": "failed"}, {"failed"}),
        ({"status": "queued"}, {"low", "tagged", "other host", "plain http", "idna"}),
        ({"priority": "low"}, {"low"}),
        ({"tag": "blue"}, {"tagged"}),
        ({"tag": "blu"}, set()),
        ({"host": "other.example:8080"}, {"other host"}),
        ({"host": "OTHER.example:8080"}, {"other host"}),
        ({"host": "plain.example"}, {"plain http"}),
        ({"host": "other.example"}, set()),
        ({"host": "BÜCHER.example"}, {"idna"}),
        ({"host": "xn--bcher-kva.example:443"}, {"idna"}),
        ({"status": "queued", "tag": "blue", "priority": "normal"}, {"tagged"}),
    ],
)
def test_filters(client: Client, tenant: Tenant, parameters: dict[str, str], wanted: set[str]) -> None:
    jobs = {
        "failed": make_job(tenant, state=State.FAILED),
        "low": make_job(tenant, priority=Priority.LOW),
        "tagged": make_job(tenant, tags=["red", "blue"]),
        "other host": make_job(tenant, host="other.example:8080"),
        "plain http": make_job(tenant, host="plain.example:80"),
        "idna": make_job(tenant, host="xn--bcher-kva.example:443"),
    }
    assert set(ids(client, **parameters)) == {str(jobs[name].id) for name in wanted}


def made_at(tenant: Tenant, moment: datetime, *, clock: timedelta = timedelta()) -> Job:
    """A job made at `moment` by a process whose clock is wrong by `clock`."""
    return make_job(tenant, created_at=moment, id=uuid.UUID(int=first_id(moment + clock).int + 7))


def test_filters_by_time_are_exclusive(client: Client, tenant: Tenant) -> None:
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    early, middle, late = (made_at(tenant, noon + timedelta(hours=hours)) for hours in (-1, 0, 1))
    assert ids(client, created_after="2026-06-01T12:00:00Z") == [str(late.id)]
    assert ids(client, created_before="2026-06-01T14:00:00+02:00") == [str(early.id)]
    assert ids(client, created_after="2026-06-01T11:00:00Z", created_before="2026-06-01T13:00:00Z") == [str(middle.id)]


@pytest.mark.parametrize("limit", ["0", "-1", "abc", "1001", "1.0", "", "%2B7", "1_0", "٣", "9" * 5000])
def test_a_wrong_limit_is_400(client: Client, limit: str) -> None:
    document = refused(client, f"limit={limit}")
    assert document["code"] == "invalid_parameter"
    assert document["errors"][0]["pointer"] == "limit"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("status=done", "status"),
        ("status=", "status"),
        ("priority=1", "priority"),
        ("created_after=yesterday", "created_after"),
        ("created_before=2026-01-01T00:00:00", "created_before"),
        ("created_before=2026-01-01T00:00:00+01:00", "created_before"),
        ("host=", "host"),
        ("host=a.example/path", "host"),
        ("host=user@a.example", "host"),
        ("host=a.example:0", "host"),
        ("tag=a%00b", "tag"),
        ("schedule=1", "schedule"),
        ("state=queued", "state"),
        ("status=queued&status=failed", "status"),
        ("offset=5", "offset"),
    ],
)
def test_wrong_and_unknown_parameters_are_named(client: Client, query: str, name: str) -> None:
    document = refused(client, query)
    assert document["code"] == "invalid_parameter"
    assert [problem["pointer"] for problem in document["errors"]] == [name]


def test_all_wrong_parameters_are_named_at_once(client: Client) -> None:
    document = refused(client, "limit=0&nope=1&status=x")
    assert {problem["pointer"] for problem in document["errors"]} == {"limit", "nope", "status"}


@pytest.fixture
def cursor(client: Client, tenant: Tenant) -> str:
    for _ in range(3):
        make_job(tenant, state=State.FAILED)
    found = page(client, status="failed", limit=1)["next_cursor"]
    assert isinstance(found, str)
    return found


def test_a_cursor_goes_with_another_limit(client: Client, cursor: str) -> None:
    assert len(ids(client, status="failed", limit=2, cursor=cursor)) == 2


@pytest.mark.parametrize("other", [{}, {"status": "queued"}, {"status": "failed", "priority": "normal"}])
def test_a_cursor_of_other_filters_is_refused(client: Client, cursor: str, other: dict[str, str]) -> None:
    answer = client.get(JOBS, {**other, "cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")


def test_a_cursor_of_another_tenant_is_refused(cursor: str) -> None:
    answer = client_of(make_tenant()).get(JOBS, {"status": "failed", "cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")


def test_an_altered_cursor_is_refused(client: Client, cursor: str) -> None:
    altered = [cursor[:-1], cursor + "a", "f" + cursor[1:], cursor.partition(".")[0], "", ".", "é", "a" * 5000]
    for wrong in altered:
        answer = client.get(JOBS, {"status": "failed", "cursor": wrong})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), wrong


def test_a_list_takes_as_many_queries_for_a_hundred_jobs_as_for_one(client: Client, tenant: Tenant) -> None:
    make_job(tenant, state=State.FAILED)
    client.get(JOBS)
    with CaptureQueriesContext(connection) as for_one:
        page(client)
    for _ in range(99):
        make_job(tenant, state=State.FAILED)
    with CaptureQueriesContext(connection) as for_hundred:
        assert len(page(client)["items"]) == 100
    assert len(for_one) == len(for_hundred)
    assert len([query for query in for_hundred if '"jobs_' in query["sql"]]) == 1


def test_a_list_does_not_read_bodies(client: Client, tenant: Tenant) -> None:
    make_job(tenant, body=b"x", headers={"Authorization": "secret"})
    with CaptureQueriesContext(connection) as queries:
        document = page(client)
    assert "secret" not in str(document)
    [sql] = [query["sql"] for query in queries if '"jobs_job"' in query["sql"]]
    assert '"body"' not in sql
    assert '"headers"' not in sql


def test_clocks_that_are_minutes_apart_hide_no_job(client: Client, tenant: Tenant) -> None:
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    jobs = [made_at(tenant, noon, clock=timedelta(minutes=minutes)) for minutes in (9, 0, -9)]
    around = {"created_after": "2026-06-01T11:59:59Z", "created_before": "2026-06-01T12:00:01Z"}
    assert ids(client, **around) == [str(job.id) for job in jobs]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_times_that_no_id_can_hold_are_times_all_the_same(client: Client, tenant: Tenant, moment: str) -> None:
    job = make_job(tenant)
    early = moment < "2026"
    assert ids(client, created_after=moment) == ([str(job.id)] if early else [])
    assert ids(client, created_before=moment) == ([] if early else [str(job.id)])


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_page_looks_at_so_many_rows_and_the_next_goes_on(
    client: Client, tenant: Tenant, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "MOST_LOOKED_AT", 4)
    tagged = [str(make_job(tenant, tags=["a"] if number in (0, 1, 9) else []).id) for number in range(13)]
    seen: list[str] = []
    pages = 0
    cursor: dict[str, Any] = {}
    while True:
        document = page(client, tag="a", limit=limit, **cursor)
        seen += [item["id"] for item in document["items"]]
        pages += 1
        if document["next_cursor"] is None:
            break
        cursor = {"cursor": document["next_cursor"]}
    assert seen == [tagged[number] for number in (9, 1, 0)]
    assert pages >= 4


FILTERS: list[dict[str, Any]] = [
    {},
    {"status": State.FAILED},
    {"status": State.RUNNING},
    {"host": ["host1.example:443"]},
    {"tag": "rare"},
    {"priority": Priority.LOW},
    {"status": State.FAILED, "host": ["host1.example:443"], "priority": Priority.LOW},
    {"created_before": datetime(2026, 6, 1, tzinfo=UTC)},
    {"created_after": datetime(2026, 6, 1, tzinfo=UTC), "status": State.FAILED},
]


@pytest.mark.parametrize("old_statistics", [False, True])
def test_no_filter_sorts_or_reads_the_table_whole(tenant: Tenant, old_statistics: bool) -> None:
    if not old_statistics:
        Job.objects.bulk_create([_row(tenant, number) for number in range(2000)])
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE jobs_job")
    for filters in FILTERS:
        for after in (None, new_id()):
            with CaptureQueriesContext(connection) as queries:
                selectors.list_jobs(tenant.id, filters, after=after, limit=100)
            reads = [query["sql"] for query in queries if "jobs_job" in query["sql"]]
            assert len(reads) == (1 if not filters or set(filters) == {"status"} else 2)
            for sql in reads:
                plan = _plan(sql)
                assert "Index" in plan, (filters, plan)
                assert not [word for word in ("Seq Scan", "Sort", "Bitmap") if f"'Node Type': '{word}" in plan], plan


def _row(tenant: Tenant, number: int) -> Job:
    return Job(
        tenant=tenant,
        url="https://host.example/",
        host=f"host{number % 50}.example:443",
        priority=1 + number % 3,
        deadline_seconds=1,
        max_attempts=1,
        max_bytes=1,
    )


def _plan(sql: str) -> str:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(selectors._IN_ORDER)
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        return str(cursor.fetchone()[0])

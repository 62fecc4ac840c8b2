"""POST /jobs/batch: each row by itself, one key for all, few statements."""

from __future__ import annotations

import base64
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs import admission, batches, counters, idempotency, notices, refusals
from jobs.admission import Ledger
from jobs.models import IdempotencyRecord, Job, JobEvent
from jobs.refusals import Tally
from jobs.states import State
from tenants.models import Scope, Tenant
from tests.factories import client_of, make_tenant

BATCH = "/api/v1/jobs/batch"
GOOD = {"url": "http://example.com/"}
BAD = {"url": "nope"}
LINES = "application/x-ndjson"


@pytest.fixture(autouse=True)
def _own_knowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_ledger", Ledger())
    monkeypatch.setattr(refusals, "_tally", Tally())


@pytest.fixture
def client(tenant: Tenant) -> Client:
    return client_of(tenant)


def post(client: Client, body: Any, *, kind: str = "application/json", key: str | None = None) -> Any:
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.generic("POST", BATCH, data, content_type=kind, headers=headers)


def stored(client: Client, body: Any, **options: Any) -> dict[str, Any]:
    answer = post(client, body, **options)
    assert answer.status_code == 202, answer.content
    document: dict[str, Any] = answer.json()
    assert [item["index"] for item in document["items"]] == list(range(len(document["items"])))
    assert document["accepted"] == sum("id" in item for item in document["items"])
    assert document["rejected"] == sum("error" in item for item in document["items"])
    return document


def refusal(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_good_rows_are_kept_when_others_are_bad(client: Client) -> None:
    document = stored(client, [GOOD, BAD, {**GOOD, "tags": ["a", 1], "nope": 1}, 7, {**GOOD, "priority": "high"}])
    assert (document["accepted"], document["rejected"]) == (2, 3)
    first, wrong_url, wrong_fields, no_object, last = document["items"]
    assert {first["status"], last["status"]} == {"queued"}
    assert {str(job.id): job.get_priority_display() for job in Job.objects.all()} == {
        first["id"]: "normal",
        last["id"]: "high",
    }
    assert wrong_url["error"]["code"] == "validation_failed"
    assert [problem["pointer"] for problem in wrong_url["error"]["errors"]] == ["/url"]
    assert {problem["pointer"] for problem in wrong_fields["error"]["errors"]} == {"/tags/1", "/nope"}
    assert no_object["error"]["errors"][0]["pointer"] == ""


def test_a_row_is_stored_as_a_single_job_is(client: Client) -> None:
    asked = {
        "url": "http://exämple.com/a?b",
        "method": "POST",
        "params": {"q": ["1", 2]},
        "headers": {"Accept": 'a"\\b', "X-Latin": "ü"},
        "body_base64": base64.b64encode(bytes(range(256))).decode(),
        "priority": "low",
        "callback_url": "https://example.com/done",
        "tags": ["a,b", 'c"d', "{}", "😀", "NULL"],
        "run_at": "2026-12-24T12:00:00.123456+01:00",
        "deadline_seconds": 7,
        "max_attempts": 3,
        "max_bytes": 9,
        "retry_unsafe": True,
        "follow_redirects": False,
        "respect_robots": True,
    }
    for document in (asked, GOOD):
        [item] = stored(client, [document])["items"]
        single = client.post("/api/v1/jobs", document, content_type="application/json").json()
        own = {"id", "created_at", "eligible_at"} if document is GOOD else {"id", "created_at"}
        ours, theirs = row_of(item["id"]), row_of(single["id"])
        assert {name: ours[name] for name in ours.keys() - own} == {name: theirs[name] for name in theirs.keys() - own}
        event = JobEvent.objects.filter(job_id=item["id"]).values_list("to_state", "reason").get()
        assert event == ("queued", "submitted")


def row_of(job_id: str) -> dict[str, Any]:
    row: Any = Job.objects.filter(pk=job_id).values().get()
    return {**row, "body": None if row["body"] is None else bytes(row["body"])}


@pytest.mark.parametrize("kind", [LINES, "application/jsonl", f"{LINES}; charset=utf-8"])
def test_lines_are_a_batch(client: Client, kind: str) -> None:
    body = f"{json.dumps(GOOD)}\r\n\n  \n{{broken\n{json.dumps(GOOD)}"
    document = stored(client, body, kind=kind)
    assert ["id" in item for item in document["items"]] == [True, False, True]
    assert document["items"][1]["error"]["code"] == "malformed_request"


@pytest.mark.parametrize(
    "row",
    [
        '{"url":NaN}',
        '{"url":"http://a.example/","url":"http://b.example/"}',
        '{"url":"http://a.example/","tags":["\\ud800"]}',
        '{"url":"http://a.example/","body":"\\u0000"}',
        '{"params":' + "[" * 70 + "]" * 70 + "}",
    ],
)
@pytest.mark.parametrize("kind", ["application/json", LINES])
def test_strictness_is_told_row_by_row(client: Client, row: str, kind: str) -> None:
    rows = [json.dumps(GOOD), row, json.dumps(GOOD)]
    document = stored(client, f"[{','.join(rows)}]" if kind != LINES else "\n".join(rows), kind=kind)
    assert [item.get("error", {}).get("code") for item in document["items"]] == [None, "malformed_request", None]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (" ", (400, "malformed_request")),
        ("[", (400, "malformed_request")),
        (json.dumps([GOOD])[:-1], (400, "malformed_request")),
        (f"[{json.dumps(GOOD)},]", (400, "malformed_request")),
        ("[]", (422, "empty_batch")),
        ("{}", (422, "validation_failed")),
        (json.dumps([0] * 10_001), (422, "too_many_jobs")),
        ("[" + '"' + "x" * (1024 * 1024) + '"]', (413, "payload_too_large")),
        ("[" + " " * (32 * 1024 * 1024) + "]", (413, "payload_too_large")),
    ],
    ids=["nothing", "begun", "not ended", "comma", "empty", "object", "too many", "large row", "large body"],
)
def test_what_is_wrong_with_the_whole_refuses_the_whole(client: Client, body: str, expected: tuple[int, str]) -> None:
    assert refusal(post(client, body)) == expected
    assert Job.objects.count() == 0


def test_other_types_are_refused(client: Client) -> None:
    assert refusal(post(client, "[]", kind="text/csv")) == (415, "unsupported_media_type")
    assert refusal(post(client, "\n", kind=LINES)) == (422, "empty_batch")


def test_a_large_line_is_refused_alone(client: Client) -> None:
    document = stored(client, json.dumps(GOOD) + '\n{"body":"' + "x" * 1024 * 1024 + '"}', kind=LINES)
    assert document["items"][1]["error"]["code"] == "payload_too_large"


def test_only_wrong_rows_are_a_receipt_too_and_are_not_remembered(client: Client) -> None:
    assert stored(client, [BAD, BAD], key="k")["accepted"] == 0
    assert stored(client, [GOOD], key="k")["accepted"] == 1


def test_what_is_told_of_wrong_rows_is_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_PROBLEMS", 25)
    document = stored(client, [{str(number): 1 for number in range(50)}] * 4)
    assert [len(item["error"].get("errors", [])) for item in document["items"]] == [10, 10, 5, 0]


def test_it_needs_the_scope_to_write(tenant: Tenant) -> None:
    assert refusal(post(client_of(tenant, scopes=[Scope.JOBS_READ]), [GOOD])) == (403, "permission_denied")


def test_the_same_key_gets_the_same_receipt(client: Client) -> None:
    first = post(client, [GOOD, BAD, GOOD], key="k")
    again = post(client, json.dumps([GOOD, BAD, GOOD], indent=1), key="k")
    assert again.json() == first.json()
    assert ("Idempotent-Replayed" in first, again["Idempotent-Replayed"]) == (False, "true")
    assert Job.objects.count() == 2
    lines = "\n".join(json.dumps(row) for row in (GOOD, BAD, GOOD))
    assert post(client, lines, kind=LINES, key="k").json() == first.json()


def test_a_key_with_other_rows_is_refused(client: Client) -> None:
    stored(client, [GOOD], key="k")
    for other in ([GOOD, GOOD], [GOOD, BAD], [{**GOOD, "tags": []}]):
        assert refusal(post(client, other, key="k")) == (422, "idempotency_key_reused")
    one = {"Idempotency-Key": "k"}
    assert client.post("/api/v1/jobs", GOOD, content_type="application/json", headers=one).status_code == 202
    assert refusal(post(client, [GOOD], key="a b")) == (400, "invalid_idempotency_key")


def test_a_batchs_key_is_kept_until_its_last_job_has_ended(client: Client) -> None:
    first = stored(client, [GOOD, GOOD], key="k")
    IdempotencyRecord.objects.update(created_at=Now() - timedelta(hours=25))
    Job.objects.filter(pk=first["items"][0]["id"]).update(state=State.CANCELLED, finished_at=Now())
    assert idempotency.purge_expired(10) == 0
    assert stored(client, [GOOD, GOOD], key="k") == first
    Job.objects.filter(pk=first["items"][1]["id"]).update(state=State.CANCELLED, finished_at=Now())
    assert stored(client, [GOOD, GOOD], key="k") != first
    IdempotencyRecord.objects.update(created_at=Now() - timedelta(hours=25))
    Job.objects.filter(state=State.QUEUED).update(state=State.CANCELLED, finished_at=Now())
    assert idempotency.purge_expired(10) == 1


def test_what_the_queue_has_no_room_for_is_refused_row_by_row(client: Client, tenant: Tenant) -> None:
    for limit in (4, 2000):  # counted exactly, and by looks
        Tenant.objects.filter(pk=tenant.pk).update(max_queued=limit)
        Job.objects.all().delete()
        Job.objects.bulk_create([_queued(tenant) for _ in range(limit - 3)])
        document = stored(client, [GOOD, BAD, GOOD, GOOD, GOOD, BAD], key=f"k{limit}")
        codes = [item.get("error", {}).get("code") for item in document["items"]]
        assert codes == [None, "validation_failed", None, None, "too_many_queued", "validation_failed"]
        assert Job.objects.count() == limit
        answer = post(client, [GOOD])
        assert refusal(answer) == (429, "too_many_queued")
        assert int(answer["Retry-After"]) >= 1
        assert stored(client, [GOOD, BAD, GOOD, GOOD, GOOD, BAD], key=f"k{limit}") == document, "needs no room again"
    assert counters.total(counters.REFUSED["max_queued"]) >= 1


def _queued(tenant: Tenant) -> Job:
    return Job(
        tenant=tenant, url="http://a/", host="a:80", deadline_seconds=1, max_attempts=1, max_bytes=1, state=State.QUEUED
    )


def test_a_batch_uses_up_its_rate_and_waits_for_what_is_owed(client: Client, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(submit_rate=10)
    assert stored(client, [GOOD] * 40)["accepted"] == 40
    answer = post(client, [GOOD])
    assert refusal(answer) == (429, "submit_rate_exceeded")
    assert int(answer["Retry-After"]) >= 2, "30 are owed at 10 a second"
    assert stored(client, [BAD])["accepted"] == 0, "what makes no job uses nothing up"


def test_few_statements_store_many_jobs(client: Client) -> None:
    stored(client, [GOOD])
    with CaptureQueriesContext(connection) as queries:
        stored(client, [GOOD] * 2500, key="k")
    assert len([query for query in queries if "INSERT INTO jobs_job " in query["sql"]]) == 3
    assert len(queries) < 15


def test_large_rows_go_into_statements_of_their_own(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "STATEMENT_CHARACTERS", 1000)
    with CaptureQueriesContext(connection) as queries:
        stored(client, [{**GOOD, "method": "POST", "body": "x" * 600}] * 5)
    assert len([query for query in queries if "INSERT INTO jobs_job " in query["sql"]]) == 5


@pytest.mark.django_db(transaction=True)
def test_the_publisher_is_woken_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[int] = []
    monkeypatch.setattr(notices, "work_waits", lambda: woken.append(Job.objects.count()))
    stored(client, [GOOD] * 3)
    stored(client, [BAD])
    assert woken == [3]


@pytest.mark.django_db(transaction=True)
def test_fifty_parallel_posts_with_one_key_make_one_batch(client: Client, tenant: Tenant) -> None:
    def one(_: int) -> tuple[int, str]:
        try:
            answer = post(client, [GOOD, BAD, GOOD], key="k")
            document = answer.json()
            said = document["code"] if answer.status_code != 202 else json.dumps(document, sort_keys=True)
            return answer.status_code, said
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        answers = Counter(pool.map(one, range(50)))
    assert {status for status, _ in answers} <= {202, 409}
    assert len([said for status, said in answers if status == 202]) == 1
    assert {said for status, said in answers if status == 409} <= {"idempotency_key_in_flight"}
    assert Job.objects.count() == 2


def test_another_tenants_key_is_another_key(client: Client) -> None:
    other = client_of(make_tenant())
    assert stored(client, [GOOD], key="k") != stored(other, [GOOD], key="k")

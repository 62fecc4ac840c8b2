"""Idempotency-Key: the same key and body gets the same receipt, whoever races whom."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs import idempotency, services
from jobs.idempotency import InvalidIdempotencyKey, KeyUse
from jobs.models import IdempotencyRecord, Job
from jobs.services import Receipt
from jobs.states import State
from jobs.submission import read_submission
from tests.factories import client_of, make_job, make_tenant

JOBS = "/api/v1/jobs"
DOCUMENT = {"url": "http://example.com/", "tags": ["a"]}


def submit(client: Client, key: str, document: object = DOCUMENT) -> Any:
    return client.post(JOBS, document, content_type="application/json", headers={"Idempotency-Key": key})


@pytest.fixture
def client(db: None) -> Client:
    return client_of(make_tenant())


def test_the_same_key_and_body_gets_the_same_receipt(client: Client) -> None:
    first, second = submit(client, "k"), submit(client, "k")
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    assert first["Location"] == second["Location"]
    assert "Idempotent-Replayed" not in first
    assert second["Idempotent-Replayed"] == "true"
    assert Job.objects.count() == 1


def test_the_receipt_is_the_same_when_the_job_has_moved_on(client: Client) -> None:
    first = submit(client, "k").json()
    assert client.post(f"{JOBS}/{first['id']}/cancel").status_code == 200
    assert submit(client, "k").json() == first


def test_white_space_and_order_of_names_do_not_count(client: Client) -> None:
    first = submit(client, "k", {"url": "http://example.com/", "tags": ["a"]})
    body = '{ "tags" : ["a"],\n "url": "http:\\/\\/example.com/" }'
    second = client.generic("POST", JOBS, body, content_type="application/json", headers={"Idempotency-Key": "k"})
    assert second.json() == first.json()


@pytest.mark.parametrize("other", [{"url": "http://example.com/other"}, {"url": "http://example.com/", "tags": ["b"]}])
def test_the_same_key_with_another_body_is_refused(client: Client, other: dict[str, Any]) -> None:
    submit(client, "k")
    answer = submit(client, "k", other)
    assert answer.status_code == 422
    assert answer.json()["code"] == "idempotency_key_reused"
    assert Job.objects.count() == 1


def test_quoted_and_bare_are_the_same_key(client: Client) -> None:
    assert submit(client, "8e03978e").json() == submit(client, '"8e03978e"').json()
    assert submit(client, 'a"b\\c').json() == submit(client, '"a\\"b\\\\c"').json()
    assert Job.objects.count() == 2


def test_tenants_do_not_share_keys(client: Client) -> None:
    other = client_of(make_tenant())
    assert submit(client, "k").json()["id"] != submit(other, "k").json()["id"]


@pytest.mark.parametrize(
    "header", ["", " ", '""', "a b", "a" * 256, '"open', '"a"b"', '"a b"', '"a\\x"', "é", '"a";p=1']
)
def test_a_bad_key_is_400(client: Client, header: str) -> None:
    answer = submit(client, header)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_idempotency_key"


@pytest.mark.parametrize(("header", "key"), [("a" * 255, "a" * 255), ('"' + "a" * 255 + '"', "a" * 255), ("!", "!")])
def test_keys_that_are_fine(header: str, key: str) -> None:
    assert idempotency.read_key(header) == key


def test_a_key_over_its_length_is_refused_quoted_as_well() -> None:
    with pytest.raises(InvalidIdempotencyKey):
        idempotency.read_key('"' + "a" * 256 + '"')


def test_a_refused_body_is_not_remembered(client: Client) -> None:
    assert submit(client, "k", {"url": "ftp://example.com/"}).status_code == 422
    assert submit(client, "k").status_code == 202


def test_an_unauthorised_call_is_not_remembered(client: Client) -> None:
    assert submit(Client(), "k").status_code == 401
    assert submit(client, "k").status_code == 202


def test_intake_with_a_key_takes_two_statements(client: Client) -> None:
    submit(client, "first")
    with CaptureQueriesContext(connection) as queries:
        submit(client, "second")
    own = [query["sql"] for query in queries if "jobs_" in query["sql"]]
    assert len(own) == 2, own


def _age(**by: int) -> None:
    IdempotencyRecord.objects.update(created_at=Now() - timedelta(**by))


def test_a_key_is_kept_a_day_after_its_job_ended(client: Client) -> None:
    first = submit(client, "k").json()
    client.post(f"{JOBS}/{first['id']}/cancel")
    _age(hours=23)
    assert submit(client, "k").json() == first
    _age(hours=25)
    assert submit(client, "k", {"url": "http://example.com/new"}).json()["id"] != first["id"]
    assert IdempotencyRecord.objects.count() == 1


def test_a_key_is_kept_while_its_job_has_not_ended(client: Client) -> None:
    first = submit(client, "k").json()
    _age(days=30)
    assert submit(client, "k").json() == first


@pytest.mark.django_db
def test_purge_forgets_only_what_is_past_its_time_and_ended() -> None:
    tenant = make_tenant()
    for key, state, hours in [("old", State.FAILED, 25), ("young", State.FAILED, 23), ("waits", State.QUEUED, 25)]:
        IdempotencyRecord.objects.create(
            tenant=tenant,
            call="POST /jobs",
            key=key,
            fingerprint="",
            job=make_job(tenant, state=state),
            created_at=Now() - timedelta(hours=hours),
        )
    assert idempotency.purge_expired(10) == 1
    assert set(IdempotencyRecord.objects.values_list("key", flat=True)) == {"young", "waits"}


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


@pytest.mark.django_db(transaction=True)
def test_fifty_parallel_posts_with_one_key_make_one_job() -> None:
    client = client_of(make_tenant())
    answers = in_threads(50, lambda _: submit(client, "k"))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) <= {202, 409}
    assert statuses[202] >= 1
    assert Job.objects.count() == 1
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 202}) == 1
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["code"] == "idempotency_key_in_flight"
            assert int(answer["Retry-After"]) >= 1
    assert submit(client, "k")["Idempotent-Replayed"] == "true"


@pytest.mark.django_db(transaction=True)
def test_while_the_first_is_in_flight_the_second_is_told_to_come_again() -> None:
    tenant = make_tenant()
    client = client_of(tenant)
    use = KeyUse(tenant.id, "POST /jobs", "k", idempotency.fingerprint(DOCUMENT))
    with transaction.atomic():
        assert idempotency.look_up(use) is None
        [answer] = in_threads(1, lambda _: submit(client, "k"))
    assert answer.status_code == 409
    assert answer["Retry-After"] == "1"
    assert submit(client, "k").status_code == 202  # the first gave up: nothing was remembered


@pytest.mark.django_db(transaction=True)
def test_who_comes_between_look_up_and_insert_wins_by_the_constraint() -> None:
    tenant = make_tenant()
    use = KeyUse(tenant.id, "POST /jobs", "k", idempotency.fingerprint(DOCUMENT))
    submission = read_submission(DOCUMENT, now=datetime.now(UTC))
    winner = make_job(tenant)
    with transaction.atomic():
        assert idempotency.look_up(use) is None
        bound = {"tenant_id": use.tenant_id, "call": use.call, "key": use.key, "fingerprint": use.fingerprint}
        in_threads(1, lambda _: IdempotencyRecord.objects.create(**bound, job=winner))
        assert services.insert_with_key(tenant.id, submission, use) is None
    assert list(Job.objects.all()) == [winner]
    assert services.submit(tenant, submission, use) == Receipt(winner.id, winner.created_at, replayed=True)

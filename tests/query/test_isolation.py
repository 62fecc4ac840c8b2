"""No route of the document, asked with another tenant's ids, cursors or names, tells anything of that tenant."""

from __future__ import annotations

import re
import statistics
import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pytest
from django.db import connection
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from core.ids import new_id
from jobs import publisher
from jobs.models import Attempt, Job, JobEvent
from jobs.states import Outcome, State
from tenants.models import Tenant
from tests.factories import client_of, make_attempt, make_job, make_tenant, member_client
from webhooks.models import Delivery, Endpoint

SAMPLES: Final = 25
CLASS: Final = 3.0
"""Two medians within this factor (and half a millisecond) are of one class: a query more would not stay within it."""
BODIES: Final[dict[str, Any]] = {
    "change_webhook_endpoint": {"description": "mine"},
    "replay_webhook_deliveries": {"since": "2026-01-01T00:00:00Z"},
    "rotate_webhook_secret": {},
}


@dataclass(frozen=True)
class Call:
    """One call of the document whose address holds an id."""

    name: str
    method: str
    path: str

    @property
    def parameter(self) -> str:
        return str(re.findall(r"{(\w+)}", self.path)[0])

    def send(self, client: Client, of: uuid.UUID) -> Any:
        body = BODIES.get(self.name)
        data = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(client, self.method)(self.path.replace(f"{{{self.parameter}}}", str(of)), **data)


def calls_with_ids() -> list[Call]:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]  # type: ignore[no-untyped-call]
    return [
        Call(call["operationId"], method, path)
        for path, methods in paths.items()
        for method, call in methods.items()
        if "{" in path
    ]


CALLS: Final = calls_with_ids()


@pytest.fixture
def owner(db: None) -> Tenant:
    return make_tenant("the owner")


@pytest.fixture
def stranger(db: None) -> Client:
    return client_of(make_tenant("a stranger"))


@pytest.fixture
def owned(owner: Tenant) -> dict[str, uuid.UUID]:
    """By the name of its parameter, something of each kind; the job has an attempt, an end and a delivery."""
    job = make_job(owner, state=State.FAILED, tags=["theirs"], host="theirs.example:443")
    make_attempt(job, outcome=Outcome.FAILED, error_code="http_404", http_status=404)
    endpoint = Endpoint.objects.create(tenant=owner, url="https://theirs.example/hook", secret="sealed")
    delivery = Delivery.objects.create(
        tenant=owner, endpoint=endpoint, job_id=job.id, event_type="job.finished", body=b"{}", status="failed"
    )
    publisher.publish_finish_events(100, lambda messages: None)
    return {"job_id": job.id, "endpoint_id": endpoint.pk, "delivery_id": delivery.pk}


def rows_of(owner: Tenant) -> list[Any]:
    """Everything that a stranger could have changed."""
    return [
        list(Job.objects.filter(tenant=owner).values()),
        list(Attempt.objects.filter(job__tenant=owner).values()),
        list(JobEvent.objects.filter(job__tenant=owner).values()),
        list(Endpoint.objects.filter(tenant=owner).values()),
        [{**row, "body": bytes(row["body"])} for row in Delivery.objects.filter(tenant=owner).values()],
    ]


def test_the_walk_knows_every_kind_of_id(owned: dict[str, uuid.UUID]) -> None:
    assert {call.parameter for call in CALLS} == set(owned)
    assert len(CALLS) >= 14


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_anothers_id_is_not_found_and_nothing_is_changed(
    call: Call, owner: Tenant, owned: dict[str, uuid.UUID], stranger: Client
) -> None:
    theirs, unknown = owned[call.parameter], new_id()
    before = rows_of(owner)
    foreign, missing = call.send(stranger, theirs), call.send(stranger, unknown)
    assert rows_of(owner) == before
    assert foreign.status_code == missing.status_code == 404, foreign.content
    told, of_nothing = foreign.json(), missing.json()
    for document, its_id in ((told, theirs), (of_nothing, unknown)):
        document["instance"] = document["instance"].replace(str(its_id), "")
        document.pop("request_id")
    assert told == of_nothing, "nothing tells what is another's from what is not there"
    assert foreign.headers.keys() == missing.headers.keys()
    assert call.send(client_of(owner), theirs).status_code != 404, "its owner finds it"


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_persons_browser_finds_nothing_of_another_tenant(call: Call, owned: dict[str, uuid.UUID], db: None) -> None:
    answer = call.send(member_client(make_tenant()), owned[call.parameter])
    assert answer.status_code == 404
    assert "theirs" not in answer.content.decode()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_anothers_id_costs_what_an_unknown_one_costs(call: Call, owned: dict[str, uuid.UUID], stranger: Client) -> None:
    """The queries are the same; the time is of the same class, so that no clock finds ids either."""
    call.send(stranger, new_id())  # the first call also looks the key up, and notes its use
    asked = {"theirs": [owned[call.parameter]] * SAMPLES, "unknown": [new_id() for _ in range(SAMPLES)]}
    queries = {who: _queries(call, stranger, ids[0]) for who, ids in asked.items()}
    assert queries["theirs"] == queries["unknown"]
    took: dict[str, list[float]] = {"theirs": [], "unknown": []}
    for pair in zip(*asked.values(), strict=True):  # in turns, so that a busy moment hits both
        for who, one in zip(asked, pair, strict=True):
            started = time.perf_counter()
            call.send(stranger, one)
            took[who].append(time.perf_counter() - started)
    medians = sorted(statistics.median(times) for times in took.values())
    assert medians[1] <= CLASS * medians[0] + 0.0005


def _queries(call: Call, client: Client, of: uuid.UUID) -> list[str]:
    """The statements of one request, without their values."""
    connection.force_debug_cursor, before = True, connection.force_debug_cursor
    try:
        connection.queries_log.clear()
        call.send(client, of)
        return [re.sub(r"'[^']*'|\d+", "?", query["sql"]) for query in connection.queries_log]
    finally:
        connection.force_debug_cursor = before


LISTS: Final = ("/api/v1/jobs", "/api/v1/events", "/api/v1/deliveries", "/api/v1/webhook-endpoints")


def test_lists_feeds_and_figures_hold_nothing_of_others(
    owned: dict[str, uuid.UUID], stranger: Client, owner: Tenant
) -> None:
    for path in LISTS:
        assert client_of(owner).get(path).json()["items"], f"{path}: its owner sees it"
        assert stranger.get(path).json()["items"] == [], path
    filters = (
        "status=failed",
        "host=theirs.example",
        "tag=theirs",
        "priority=normal",
        "created_after=2026-01-01T00:00:00Z",
    )
    for one in filters:
        answer = stranger.get(f"/api/v1/jobs?{one}")
        assert (answer.status_code, answer.json().get("items")) == (200, []), one
    assert stranger.get("/api/v1/events?after=0").json()["items"] == []
    assert stranger.get(f"/api/v1/deliveries?endpoint={owned['endpoint_id']}").json()["items"] == []
    figures = stranger.get("/api/v1/stats").json()
    assert {count for state in figures["jobs"].values() for count in state.values()} == {0}
    assert (figures["bytes_stored"], figures["oldest_queued_seconds"]) == (0, None)


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/deliveries"])
def test_anothers_cursor_is_refused(path: str, owner: Tenant, owned: dict[str, uuid.UUID], stranger: Client) -> None:
    make_job(owner)
    first = Delivery.objects.get()
    first.pk = new_id()
    first.save(force_insert=True)
    cursor = client_of(owner).get(path, {"limit": 1}).json()["next_cursor"]
    assert client_of(owner).get(path, {"limit": 1, "cursor": cursor}).status_code == 200
    answer = stranger.get(path, {"limit": 1, "cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")


def test_anothers_number_of_an_end_leads_to_ones_own_only(
    owned: dict[str, uuid.UUID], stranger: Client, owner: Tenant
) -> None:
    last = client_of(owner).get("/api/v1/events").json()["next_after"]
    assert stranger.get("/api/v1/events", {"after": last - 1}).json()["items"] == []


def test_ids_tell_times_only() -> None:
    """UUIDv7: the first 48 bits are milliseconds, the rest is random; nobody counts another's jobs by them."""
    ids = [new_id() for _ in range(100)]
    assert len({one.int & (2**62 - 1) for one in ids}) == len(ids)
    moments = [datetime.fromtimestamp((one.int >> 80) / 1000).astimezone() for one in ids]
    assert abs(moments[-1] - moments[0]).total_seconds() < 5

"""The short way of GET /jobs/{id}: it says what Django would say, and leaves to Django what it is not sure of."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.db.models.functions import Now
from pytest_django import Settings

from core.gateway import Gateway
from core.requests import Handler
from jobs.models import Job
from query.cache import AnswerCache
from query.express import Express
from query.lookups import Lookups
from tenants import known_keys
from tenants.known_keys import KNOWN_SECONDS, KnownKeys
from tenants.models import ApiKey, Tenant
from tests import lifecycle
from tests.core.test_gateway import FakeExchange, FakeHeaders, FakeScope
from tests.factories import make_tenant

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

pytestmark = pytest.mark.django_db(transaction=True)
NOWHERE = "redis://127.0.0.1:9/0"
Reply = tuple[int, dict[str, str], bytes]


class Door:
    """The web role's gateway in this process; counts what goes on to Django."""

    def __init__(self, *, redis_url: str = "", keys: KnownKeys | None = None) -> None:
        self.to_django = 0
        self._django = Handler()
        answers = AnswerCache(redis_url or settings.REDIS_URL)
        self._gateway = Gateway(
            self._counted,
            threads=1,
            read_threads=1,
            body_limit=1000,
            body_seconds=5.0,
            express=Express(Lookups(answers), keys or known_keys.SHARED),
        )

    def _counted(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.to_django += 1
        return self._django(environ, start_response)

    def get(self, job: Job, key: str, **changes: Any) -> Reply:
        """Ask for the job; `changes` are headers (with `_` for `-`), or `path`, `query` and `method`."""
        scope = {
            "path": changes.pop("path", f"/api/v1/jobs/{job.id}"),
            "query_string": changes.pop("query", ""),
            "method": changes.pop("method", "GET"),
        }
        given = {"host": "localhost", "accept": "application/json", "authorization": f"Bearer {key}", **changes}
        pairs: list[tuple[str, str | None]] = [
            (name.replace("_", "-"), value) for name, value in given.items() if value
        ]
        exchange = FakeExchange()
        asyncio.run(self._gateway.__rsgi__(FakeScope(FakeHeaders(pairs), **scope), exchange))
        assert exchange.answer is not None
        return exchange.answer


@pytest.fixture
def tenant(transactional_db: None) -> Tenant:
    return make_tenant()


@pytest.fixture
def key(tenant: Tenant) -> str:
    return ApiKey.issue(tenant)[1]


@pytest.fixture
def job(tenant: Tenant) -> Job:
    return lifecycle.submit(tenant)


@pytest.fixture
def door(job: Job, key: str) -> Door:
    """It has answered once, so the key and the answer are known."""
    door = Door()
    assert door.get(job, key)[0] == 200
    assert door.to_django == 1
    return door


@pytest.mark.parametrize("https", [False, True])
@pytest.mark.parametrize("etag", [None, "*"])
def test_both_ways_say_the_same_header_by_header(
    job: Job, key: str, settings: Settings, etag: str | None, https: bool
) -> None:
    if https:
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
        settings.SECURE_HSTS_SECONDS = 3600
    door = Door()
    asked = {"x_request_id": "mine", "if_none_match": etag, "x_forwarded_proto": "https, http"}
    long_way, short_way = door.get(job, key, **asked), door.get(job, key, **asked)
    assert door.to_django == 1
    assert short_way == long_way
    assert short_way[0] == (200 if etag is None else 304)
    assert ("strict-transport-security" in short_way[1]) == https


@pytest.mark.parametrize(
    "asked",
    [
        {"accept": None},
        {"accept": "*/*"},
        {"accept": "application/json, text/plain, */*"},
        {"accept": "application/problem+json"},
        {"accept_encoding": "gzip, br"},
        {"x_request_id": "a b\r"},
        {"cookie": "a=b"},
    ],
)
def test_what_programs_send_goes_the_short_way(door: Door, job: Job, key: str, asked: dict[str, str | None]) -> None:
    assert door.get(job, key, **asked)[0] == 200
    assert door.to_django == 1


def test_the_key_may_come_in_its_own_header(door: Door, job: Job, key: str) -> None:
    assert door.get(job, key, authorization=None, x_api_key=key)[0] == 200
    assert door.get(job, key, x_api_key=key)[0] == 200
    assert door.to_django == 1


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": "Bearer nonsense"}, 401),
        ({"x_api_key": "another"}, 401),
        ({"accept": "text/html"}, 200),
        ({"accept": "text/html,application/json;q=0.9"}, 200),
        ({"accept": "image/png"}, 406),
        ({"accept": "a" * 5000}, 200),
        ({"host": "evil.example"}, 400),
        ({"query": "a=b"}, 200),
        ({"method": "HEAD"}, 200),
        ({"method": "POST"}, 405),
        ({"path": "/api/v1/jobs/nonsense"}, 404),
        ({"path": f"/api/v1/jobs/{uuid.uuid4()}"}, 404),
        ({"content_length": "0"}, 200),
    ],
)
def test_all_else_is_djangos_to_answer(door: Door, job: Job, key: str, asked: dict[str, str], status: int) -> None:
    assert door.get(job, key, **asked)[0] == status
    assert door.to_django == 2


def test_another_tenants_key_gets_404_although_the_answer_is_at_hand(door: Door, job: Job) -> None:
    stranger = ApiKey.issue(make_tenant())[1]
    for _ in range(2):
        status, _, body = door.get(job, stranger)
        assert (status, json.loads(body)["code"]) == (404, "not_found")
        assert door.get(job, stranger, if_none_match="*")[0] == 404


def test_a_key_without_the_scope_gets_403_although_the_answer_is_at_hand(door: Door, job: Job, tenant: Tenant) -> None:
    writer = ApiKey.issue(tenant, scopes=["jobs:write"])[1]
    for _ in range(2):
        status, _, body = door.get(job, writer)
        assert (status, json.loads(body)["code"]) == (403, "permission_denied")


@pytest.mark.parametrize("change", ["revoked_at", "expires_at"])
def test_a_key_that_ends_works_for_five_seconds_more_at_most(job: Job, tenant: Tenant, change: str) -> None:
    made, plain = ApiKey.issue(tenant)
    moment = [1000.0]
    keys = KnownKeys(lambda: moment[0])
    keys.look_up(plain)
    door = Door(keys=keys)
    door.get(job, plain)
    ApiKey.objects.filter(pk=made.pk).update(**{change: Now()})
    known_keys.SHARED.look_up(plain)  # as if Django's process had not known it
    assert door.get(job, plain)[0] == 200
    moment[0] += KNOWN_SECONDS
    assert door.get(job, plain)[0] == 401
    assert KNOWN_SECONDS < 5


def test_without_redis_django_answers_from_the_database(job: Job, key: str) -> None:
    door = Door(redis_url=NOWHERE)
    for asked in range(1, 4):
        status, _, body = door.get(job, key)
        assert (status, json.loads(body)["id"]) == (200, str(job.id))
        assert door.to_django == asked


def test_many_at_once_are_looked_up_together(door: Door, job: Job) -> None:
    answers = Counted(settings.REDIS_URL)
    lookups = Lookups(answers)

    async def ask() -> list[Any]:
        return await asyncio.gather(*(lookups.find(str(job.id)) for _ in range(200)))

    assert None not in asyncio.run(ask())
    assert sum(answers.asked) == 200
    assert len(answers.asked) < 50


class Counted(AnswerCache):
    """Notes for how many each round trip asks."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[int] = []

    def recall(self, job_ids: Any) -> Any:
        self.asked.append(len(job_ids))
        return super().recall(job_ids)


class Broken(AnswerCache):
    """Fails in a way that nobody foresaw."""

    def recall(self, job_ids: Any) -> Any:
        raise RuntimeError("a fault of our own")


def test_nobody_waits_for_ever_when_looking_up_fails(job: Job) -> None:
    async def ask() -> Any:
        lookups = Lookups(Broken(settings.REDIS_URL))
        async with asyncio.timeout(10):
            return [await lookups.find(str(job.id)) for _ in range(2)]

    assert asyncio.run(ask()) == [None, None]

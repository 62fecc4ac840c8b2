"""A tenant's limits against the real web role: two processes, many connections at once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pytest_django import DjangoDbBlocker

from jobs.models import Job
from tenants.models import ApiKey, Tenant
from tests.core.web_role import Reply, WebRole, running_web_role
from tests.factories import make_tenant
from tests.integration.roles import database_url

BODY = json.dumps({"url": "http://a.example/"}).encode()


@pytest.fixture(scope="module")
def web(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebRole]:
    """The web role on the test database."""
    with django_db_blocker.unblock():
        url = database_url()
    with running_web_role(url, tmp_path_factory.mktemp("web") / "log", WEB_WORKERS="2") as role:
        yield role


def limited(**limits: int) -> tuple[Tenant, str]:
    tenant = make_tenant()
    Tenant.objects.filter(pk=tenant.pk).update(**limits)
    return tenant, ApiKey.issue(tenant)[1]


def post(web: WebRole, key: str) -> Reply:
    head = (
        "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    return web.send(head.encode() + BODY)


def post_many(web: WebRole, key: str, count: int) -> list[Reply]:
    with ThreadPoolExecutor(20) as pool:
        return list(pool.map(lambda _: post(web, key), range(count)))


@pytest.mark.django_db(transaction=True)
def test_two_processes_hold_a_small_limit_of_queued_jobs_to_the_job(web: WebRole) -> None:
    tenant, key = limited(max_queued=30)
    replies = post_many(web, key, 100)
    assert Counter(reply.status for reply in replies) == {202: 30, 429: 70}
    assert Job.objects.filter(tenant=tenant).count() == 30
    assert {json.loads(reply.body)["code"] for reply in replies if reply.status == 429} == {"too_many_queued"}


@pytest.mark.django_db(transaction=True)
def test_two_processes_hold_one_submit_rate(web: WebRole) -> None:
    rate = 10
    tenant, key = limited(submit_rate=rate)
    began = time.monotonic()
    replies = post_many(web, key, 150)
    seconds = time.monotonic() - began
    accepted = Job.objects.filter(tenant=tenant).count()
    assert rate <= accepted <= rate + rate * seconds
    refused = [reply for reply in replies if reply.status == 429]
    assert len(refused) == 150 - accepted
    for reply in refused:
        assert (reply.headers["retry-after"], reply.headers["ratelimit"]) == ("1", '"submit";r=0;t=1')

"""Jobs whose robots.txt is heeded, and jobs with a proxy: from the row to the target, and what is left of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings

from core.proxies import parse_proxy, seal_proxy
from jobs import transitions
from jobs.models import Attempt, CrawlDelay, Job
from jobs.states import State
from scraper.host_records import HostRecords
from scraper.politeness import Limiter
from scraper.visits import HostAdmission
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import client_of
from tests.scraper.engines import EngineUnderTest, final, running_engine, wait_for
from tests.scraper.limiters import OwnRedis, age_epoch, own_redis
from tests.scraper.proxy_server import ProxyServer
from tests.scraper.test_robots_reader import ALLOWED, FORBIDDEN, Site, says

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(FORBIDDEN) as site:
        yield site


def job_for(site: Site, **fields: Any) -> Job:
    return lifecycle.submit(url=site.page, host=site.allowed, **fields)


def ended(engine: EngineUnderTest, job: Job) -> Job:
    engine.send(job)
    return final(job)


@pytest.mark.parametrize(
    ("of_the_tenant", "of_the_job", "heeded"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_a_jobs_own_word_on_robots_wins_over_its_tenants(
    site: Site, of_the_tenant: bool, of_the_job: bool | None, heeded: bool
) -> None:
    tenant = Tenant.objects.create(name="other", respect_robots=of_the_tenant)
    with running_engine(site) as engine:
        job = ended(engine, job_for(site, tenant=tenant, respect_robots=of_the_job))
    assert (job.error_code, job.attempts) == (("blocked_by_robots", 1) if heeded else ("", 1))
    assert job.state == (State.FAILED if heeded else State.SUCCEEDED)
    if heeded:
        assert "line 2: Disallow: /page" in job.error_detail


def test_a_policy_holds_for_jobs_that_wait_already(site: Site) -> None:
    job = job_for(site)
    Tenant.objects.filter(pk=job.tenant_id).update(respect_robots=True)
    with running_engine(site) as engine:
        assert ended(engine, job).error_code == "blocked_by_robots"


def test_rules_that_cannot_be_read_are_tried_again_and_forbid_in_the_end() -> None:
    with Site(says("", "500 X")) as site, running_engine(site) as engine:
        job = job_for(site, respect_robots=True, max_attempts=2)
        engine.send(job)
        wait_for(lambda: Attempt.objects.filter(job=job).exists(), "the first attempt ended")
        job.refresh_from_db()
        assert job.state == State.QUEUED
        job = ended(engine, job)
        assert list(Attempt.objects.filter(job=job).values_list("error_code", flat=True)) == [
            "http_500",
            "blocked_by_robots",
        ]
        assert site.asked == ["GET /robots.txt"] * 2
    assert job.state == State.FAILED


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    with own_redis(tmp_path_factory.mktemp("limiter")) as server:
        yield server


def test_a_crawl_delay_reaches_the_limits_of_its_host_for_everybody(server: OwnRedis) -> None:
    limiter = Limiter(HostRecords(), url=server.url, process="engine:1", prefix="robots:")
    with (
        Site(says("User-agent: *\nCrawl-delay: 20\n")) as site,
        running_engine(site, admission=HostAdmission(limiter)) as engine,
    ):
        age_epoch(server.url, "robots:")
        wait_for(limiter._opened.is_set, "the limiter is open")
        assert ended(engine, job_for(site, respect_robots=True)).state == State.SUCCEEDED
        wait_for(CrawlDelay.objects.exists, "the delay is kept")
        assert list(CrawlDelay.objects.values_list("host", "seconds")) == [(site.allowed, 20.0)]
        wait_for(lambda: limiter._limits(site.allowed)["rate"] == 0.05, "the limiter goes by it")


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_job_goes_through_its_own_proxy_or_else_its_tenants(scheme: str) -> None:
    with (
        Site(ALLOWED) as site,
        ProxyServer(scheme, credentials=("user", SECRET)) as own,
        ProxyServer(scheme, credentials=("user", SECRET)) as tenants,
        running_engine(site, also=[own.allowed, tenants.allowed]) as engine,
    ):
        sealed = seal_proxy(parse_proxy(tenants.url(f"user:{SECRET}@")))
        tenant = Tenant.objects.create(name="other", proxy=sealed)
        with_own = job_for(site, tenant=tenant, proxy=seal_proxy(parse_proxy(own.url(f"user:{SECRET}@"))))
        assert ended(engine, with_own).state == State.SUCCEEDED
        assert (own.connections, tenants.connections) == (1, 0)
        assert ended(engine, job_for(site, tenant=tenant)).state == State.SUCCEEDED
        assert (own.connections, tenants.connections) == (1, 1)


def test_a_proxy_that_can_be_read_no_more_fails_the_job_and_nothing_is_sent(site: Site, settings: Settings) -> None:
    job = job_for(site, proxy=seal_proxy(parse_proxy("http://proxy.example")))
    settings.SECRET_KEY = "another key of enough length to be taken for one"
    with running_engine(site) as engine:
        job = ended(engine, job)
    assert (job.error_code, site.connections) == ("invalid_request", 0)
    assert "SECRET_KEY" in job.error_detail


def test_a_proxy_is_gone_with_success_and_kept_for_a_retry() -> None:
    sealed = seal_proxy(parse_proxy(f"http://user:{SECRET}@proxy.example"))
    won, lost = lifecycle.submit(proxy=sealed), lifecycle.submit(proxy=sealed, max_attempts=1)
    for job, ending in ((won, lifecycle.success), (lost, lifecycle.failure)):
        transitions.finish([ending(lifecycle.claim_now(job))])
        job.refresh_from_db()
    assert (won.state, won.proxy) == (State.SUCCEEDED, "")
    assert (lost.state, lost.proxy) == (State.FAILED, sealed)
    transitions.retry(lost.id, lost.tenant_id)
    assert lifecycle.claim_now(lost).proxy == sealed


def test_nothing_that_is_told_or_stored_holds_the_proxy(
    tenant: Tenant, admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither answers, nor the admin, nor logs, nor any row of any table."""
    client = client_of(tenant)
    document = {"url": "http://example.com/", "proxy": f"http://someone:{SECRET}@proxy.example", "max_attempts": 1}
    with caplog.at_level("DEBUG"):
        receipt = client.post("/api/v1/jobs", document, content_type="application/json", HTTP_IDEMPOTENCY_KEY="k")
        job = Job.objects.get(pk=receipt.json()["id"])
        claimed = lifecycle.claim_now(job)
        transitions.finish([lifecycle.failure(claimed)])
        pages = [f"/api/v1/jobs/{job.id}{part}" for part in ("", "/attempts", "/events")]
        told = receipt.content.decode() + "".join(client.get(page).content.decode() for page in pages)
        told += client.get("/api/v1/jobs").content.decode()
        told += admin_client.get(f"/admin/jobs/job/{job.id}/change/").content.decode()
        told += admin_client.get("/admin/jobs/job/").content.decode()
    told += repr(claimed) + repr(job) + caplog.text + everything_stored()
    for secret in (SECRET, "someone", "proxy.example"):
        assert secret not in told
    assert job.proxy
    assert job.proxy not in receipt.content.decode() + repr(claimed)


def everything_stored() -> str:
    """All rows of all tables, as text."""
    rows = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT t::text FROM {connection.ops.quote_name(table)} t")
            rows += [row[0] for row in cursor.fetchall()]
    return "\n".join(rows)

"""The fair order, from rows to claims, with real processes: a pool of eight slots and more work than it can do."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from devstack.demo_site import DemoSite
from jobs import notices
from jobs.models import Job
from jobs.states import FINAL
from tenants.models import Tenant
from tests import lifecycle
from tests.integration.roles import Roles, wait_until

pytestmark = pytest.mark.parametrize("broker_url", ["redis"], indirect=True)
SLOTS = 8


def submit(site: DemoSite, tenant: Tenant, count: int, *, seconds: float) -> list[Job]:
    host, url = f"127.0.0.1:{site.port}", f"{site.url}/slow?seconds={seconds}"
    values = {"deadline_seconds": 30, "max_attempts": 5, "max_bytes": 1_000_000}
    jobs = Job.objects.bulk_create(Job(tenant=tenant, host=host, url=url, **values) for _ in range(count))
    notices.work_waits()
    return jobs


def start_pool(roles: Roles, site: DemoSite) -> None:
    """The pool has claimed a job, so that no start-up is measured."""
    roles.environment |= {"WORKER_SLOTS": str(SLOTS)}
    roles.start("publisher")
    roles.start("worker")
    warm = lifecycle.submit(url=f"{site.url}/fast", host=f"127.0.0.1:{site.port}")
    wait_until(lambda: Job.objects.filter(pk=warm.pk, state__in=FINAL).exists(), seconds=60, what="the pool is warm")


def starts() -> list[Job]:
    return list(Job.objects.exclude(started_at=None).order_by("started_at"))


def jain(shares: list[float]) -> float:
    """Jain's index of fairness: 1 when all are alike, 1/n when one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def test_a_neighbours_jobs_start_within_two_job_times_of_a_crawl(roles: Roles, site: DemoSite) -> None:
    crawler, shop, analyst = (Tenant.objects.create(name=name) for name in ("crawler", "shop", "analyst"))
    start_pool(roles, site)
    job_seconds = 1.0
    submit(site, crawler, 400, seconds=job_seconds)
    wait_until(lambda: Job.objects.filter(tenant=crawler, state="running").count() == SLOTS, seconds=20, what="full")
    small: list[Job] = []
    for _ in range(4):
        small += submit(site, shop, 1, seconds=job_seconds) + submit(site, analyst, 1, seconds=job_seconds)
        time.sleep(0.7)
    ids = [job.pk for job in small]
    wait_until(lambda: not Job.objects.filter(pk__in=ids, started_at=None).exists(), seconds=20, what="all started")
    waits = sorted(
        (job.started_at - job.created_at).total_seconds() for job in Job.objects.filter(pk__in=ids) if job.started_at
    )
    print(f"waits of the small tenants, in job times: {[round(wait / job_seconds, 2) for wait in waits]}")
    assert waits[len(waits) // 2] <= 2 * job_seconds
    assert waits[-1] <= 2 * job_seconds + 1.0, "the second is for a machine that does other things"
    assert Job.objects.filter(tenant=crawler, started_at=None).count() > 300, "the crawl was still going on"


def test_tenants_with_work_share_the_pool_by_their_weights(roles: Roles, site: DemoSite) -> None:
    tenants = [Tenant.objects.create(name=f"tenant of {weight}", weight=weight) for weight in (3, 1, 2)]
    start_pool(roles, site)
    for tenant in tenants:
        submit(site, tenant, 200, seconds=0.2)
    measured, warm_up = 180, 4 * SLOTS
    wait_until(lambda: len(starts()) > 1 + warm_up + measured, seconds=60, what="enough jobs started")
    counts = Counter(job.tenant_id for job in starts()[1 + warm_up :][:measured])
    shares = [counts[tenant.pk] / tenant.weight for tenant in tenants]
    print(f"starts: {[counts[tenant.pk] for tenant in tenants]}, Jain's index {jain(shares):.4f}")
    assert jain(shares) >= 0.98
    assert counts[tenants[0].pk] / (counts[tenants[0].pk] + counts[tenants[1].pk]) == pytest.approx(0.75, abs=0.05)

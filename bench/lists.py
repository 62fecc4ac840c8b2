"""Reads of many jobs at a tenant's full size, and a full batch.

The requests go through the web role's own handlers in this process, without a server in between.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from django.db import connection
from django.test import Client

from bench.catalogue import BenchFailed
from bench.console import Progress, note
from bench.figures import Figure, percentile
from core.pagination import Cursors
from jobs.models import Job
from jobs.states import State
from tenants.models import ApiKey, Tenant

PAGE_BAR, DEPTH_BAR, BATCH_BAR = 50.0, 1.2, 1.5  # ms, times, s
LIMIT: Final = 100
API: Final = "/api/v1"

# Ids grow with time as the service's own do. A fifth has failed; one in 100,000 has a tag of its own.
_JOBS = """
INSERT INTO jobs_job (id, tenant_id, state, reason, priority, url, host, method, headers, executor, follow_redirects,
    retry_unsafe, deadline_seconds, max_attempts, max_bytes, callback_url, tags, created_at, eligible_at, claim_no,
    worker, attempts, losses, error_code, error_detail, result_key, result_bytes, result_content_type, result_sha256,
    result_final_url, finished_at)
SELECT (lpad(to_hex(1790000000000 + n * 86), 12, '0') || '7' || substr(md5(n::text), 1, 19))::uuid,
    %(tenant)s, state, 'submitted', 1 + n %% 3, 'https://host' || n %% 500 || '.example/page/' || n,
    'host' || n %% 500 || '.example:443', 'GET', '{}', 'http', true, false, 30, 5, 1000000, '',
    CASE WHEN n %% 100000 = 7 THEN '{rare}' ELSE '{}' END::text[], made, made, 1, '', 1, 0,
    CASE state WHEN 'failed' THEN 'http_404' ELSE '' END, '', CASE state WHEN 'succeeded' THEN 'k' ELSE '' END,
    CASE state WHEN 'succeeded' THEN 20000 END, '', '', '', CASE WHEN state <> 'queued' THEN made END
FROM generate_series(%(first)s::int, %(last)s::int - 1) n,
    LATERAL (SELECT to_timestamp(1790000000 + n * 0.086) AS made, CASE WHEN n %% 10 < 2 THEN 'failed'
        WHEN n %% 10 < 3 THEN 'queued' ELSE 'succeeded' END AS state) AS chosen
"""

# As the publisher tells of ends; the jobs are another tenant's as far as the feed is concerned, but for a thousand.
_EVENTS = """
INSERT INTO jobs_finishevent (tenant_id, job_id, at)
SELECT CASE WHEN n %% %(each)s = 0 THEN %(tenant)s::uuid ELSE %(other)s::uuid END, id, finished_at
FROM (SELECT id, finished_at, row_number() OVER (ORDER BY id) AS n FROM jobs_job WHERE finished_at IS NOT NULL) ended
"""


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """p95 of each read over `jobs` rows, and the time of a batch of `batch` jobs."""
    tenant, other = (Tenant.objects.create(name=f"bench-{uuid.uuid4().hex[:12]}") for _ in range(2))
    _fill(tenant, other, sizes["jobs"])
    client = Client(headers={"Host": "localhost", "Authorization": f"Bearer {ApiKey.issue(tenant)[1]}"})
    deep = _cursor(tenant, sizes["page"])
    reads = {
        "first page of status=failed": "/jobs?status=failed",
        f"page {sizes['page']:,} of status=failed": f"/jobs?status=failed&cursor={deep}",
        "first page of all": "/jobs?",
        "a tag that ten jobs have": "/jobs?tag=rare",
        "a host that no job has": "/jobs?host=none.example",
        "the first hour": "/jobs?created_before=2026-09-21T15:13:20Z",
        "events among other tenants'": "/events?",
        "stats": "/stats",
    }
    seconds = {name: _seconds(client, f"{API}{path}", sizes["reads"]) for name, path in reads.items()}
    figures = [Figure(f"{name}, p95", _p95_ms(found), "ms", bar=PAGE_BAR) for name, found in seconds.items()]
    first, deepest = (percentile(seconds[name], 0.5) for name in list(reads)[:2])
    figures.append(Figure(f"page {sizes['page']:,} beside the first, medians", deepest / first, "times", bar=DEPTH_BAR))
    batches = [_timed(lambda: _batch(client, sizes["batch"])) for _ in range(sizes["batches"])]
    figures.append(Figure(f"a batch of {sizes['batch']:,} jobs, median", percentile(batches, 0.5), "s", bar=BATCH_BAR))
    return figures


def _p95_ms(seconds: list[float]) -> float:
    return percentile(seconds, 0.95) * 1000


def _fill(tenant: Tenant, other: Tenant, jobs: int) -> None:
    note(f"    storing {jobs:,} jobs")
    progress, step = Progress("jobs stored", jobs), 20_000
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # without triggers: no trail of a million events
        for first in range(0, jobs, step):
            cursor.execute(_JOBS, {"tenant": tenant.id, "first": first, "last": min(first + step, jobs)})
            progress.show(first)
        each = max(1, jobs // 1000)
        cursor.execute(_EVENTS, {"tenant": tenant.id, "other": other.id, "each": each})
        cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("VACUUM ANALYZE jobs_job, jobs_finishevent")
        cursor.execute("CHECKPOINT")


def _cursor(tenant: Tenant, page: int) -> str:
    """What the page before `page` of status=failed ends with."""
    failed = Job.objects.filter(tenant=tenant, state=State.FAILED).order_by("-id").values_list("id", flat=True)
    place = (page - 1) * LIMIT - 1
    return Cursors(tenant.id, {"status": State.FAILED}).write(failed[place])


def _seconds(client: Client, path: str, times: int) -> list[float]:
    def read() -> None:
        answer: Any = client.get(path)
        if answer.status_code != 200:
            raise BenchFailed(f"{path} was answered with {answer.status_code}.")

    read()
    return [_timed(read) for _ in range(times)]


def _batch(client: Client, jobs: int) -> None:
    rows = [{"url": f"https://host{number % 500}.example/page/{number}", "tags": ["bench"]} for number in range(jobs)]
    answer: Any = client.post(f"{API}/jobs/batch", json.dumps(rows), content_type="application/json")
    if answer.status_code != 202 or answer.json()["accepted"] != jobs:
        raise BenchFailed(f"A batch was answered with {answer.status_code}.")


def _timed(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started

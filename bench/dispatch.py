"""What a pass of the dispatcher costs with much queued, and whether that grows with the backlog.

A pass chooses jobs and marks them as published; nothing is sent, so that no broker is measured. Between the passes,
outside the measured time, the published jobs run and end, as a pool would have it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from bench.console import Progress, note
from bench.figures import Figure, percentile
from jobs import publisher
from jobs.dispatcher import Dispatcher
from jobs.messages import Message

PASS_BAR, RATE_BAR, GROWTH_BAR = 50.0, 5000.0, 1.2  # ms, jobs a second, times
WARM_UP_PASSES = 3
SMALL_PART = 10  # the backlog that the large one is compared with is so many times smaller

_TENANTS = """
INSERT INTO tenants_tenant (id, name, weight, paused)
SELECT md5('tenant' || n)::uuid, 'bench ' || n, 1, false FROM generate_series(0, %(tenants)s - 1) n
"""

# Each target allows more than is asked for; its bucket is kept all the same.
_HOSTS = """
INSERT INTO jobs_hostpolicy (host, rate, burst, concurrency, adaptive, paused, note, changed_by)
SELECT 'host' || n || '.example:443', 10000, 10000, 10000, true, false, '', '' FROM generate_series(0, %(hosts)s - 1) n
"""

# Ids grow with time as the service's own do. Every pair of tenant and host has jobs where there are enough.
_JOBS = """
INSERT INTO jobs_job (id, tenant_id, state, reason, priority, url, host, method, headers, executor, follow_redirects,
    retry_unsafe, deadline_seconds, max_attempts, max_bytes, callback_url, tags, eligible_at, claim_no, worker,
    attempts, losses, error_code, error_detail, result_key, result_content_type, result_sha256, result_final_url)
SELECT (lpad(to_hex(1790000000000 + n / 10), 12, '0') || '7' || substr(md5(n::text), 1, 19))::uuid,
    md5('tenant' || n %% %(tenants)s)::uuid, 'queued', 'submitted', 1 + n %% 3,
    'https://host' || (n / %(tenants)s) %% %(hosts)s || '.example/page/' || n,
    'host' || (n / %(tenants)s) %% %(hosts)s || '.example:443', 'GET', '{}', 'http', true, false, 30, 5, 1000000, '',
    '{}', now() - interval '1 hour' + n * interval '1 microsecond', 0, '', 0, 0, '', '', '', '', '', ''
FROM generate_series(%(first)s::int, %(last)s::int - 1) n
"""

_RUN = """
UPDATE jobs_job SET state = 'running', reason = 'claimed', claim_no = claim_no + 1, attempts = 1, claimed_at = now(),
    started_at = now(), lease_expires_at = now() + interval '1 minute', worker = 'bench'
WHERE state = 'queued' AND published_at IS NOT NULL
"""

_END = """
UPDATE jobs_job SET state = 'failed', reason = 'http_404', error_code = 'http_404', finished_at = now(),
    lease_expires_at = NULL, finish_published_at = now()
WHERE state = 'running'
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the passes over one backlog: seconds of each, and how many jobs they took together."""

    seconds: Sequence[float]
    jobs: int

    @property
    def pass_ms(self) -> float:
        return percentile(self.seconds, 0.5) * 1000

    @property
    def job_us(self) -> float:
        """By the median pass, all passes being alike: a checkpoint in one of them is not the dispatcher's."""
        return percentile(self.seconds, 0.5) / (self.jobs / len(self.seconds)) * 1e6


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """The same passes over a backlog and over one SMALL_PART times smaller, in one run; then over the large one with
    the hosts' usual limits, so that most lanes meet hosts that may not go."""
    settings.PUBLISH_WINDOW = sizes["at_once"]
    _execute(_TENANTS, sizes)
    _execute(_HOSTS, sizes)
    few, many = max(1, sizes["jobs"] // SMALL_PART), sizes["jobs"]
    _queue(sizes, 0, few)
    small = _measure(sizes)
    _queue(sizes, few, many)
    large = _measure(sizes)
    first = _first_pass(sizes["at_once"])
    _execute("DELETE FROM jobs_hostpolicy")
    usual = _measure(sizes)
    return [
        Figure("a pass, median", large.pass_ms, "ms", bar=PASS_BAR),
        Figure("a pass, p95", percentile(large.seconds, 0.95) * 1000, "ms"),
        Figure("chosen and marked", 1e6 / large.job_us, "jobs/s", bar=RATE_BAR, more_is_better=True),
        Figure(f"cost of a job, {few:,} queued", small.job_us, "us"),
        Figure(f"cost of a job, {many:,} queued", large.job_us, "us"),
        Figure("the second beside the first", large.job_us / small.job_us, "times", bar=GROWTH_BAR),
        Figure("the first pass of a new leader", first * 1000, "ms"),
        Figure("a pass while hosts are at their usual limits, median", usual.pass_ms, "ms"),
        Figure("chosen and marked, the same", 1e6 / usual.job_us, "jobs/s", more_is_better=True),
    ]


def _queue(sizes: Mapping[str, int], first: int, last: int) -> None:
    note(f"    queueing {last - first:,} jobs")
    progress, step = Progress("jobs queued", last), 20_000
    for start in range(first, last, step):
        _execute(_JOBS, {**sizes, "first": start, "last": min(last, start + step)})
        progress.show(start)
    _execute("VACUUM ANALYZE jobs_job")
    _execute("CHECKPOINT")


def _measure(sizes: Mapping[str, int]) -> Measured:
    dispatcher = Dispatcher()
    seconds: list[float] = []
    jobs = 0
    for number in range(WARM_UP_PASSES + sizes["passes"]):
        started = time.perf_counter()
        sent = publisher.publish_batch(sizes["at_once"], _send, dispatcher)
        if number >= WARM_UP_PASSES:
            seconds.append(time.perf_counter() - started)
            jobs += sent
        _execute(_RUN)
        _execute(_END)
    return Measured(seconds, jobs)


def _first_pass(jobs: int) -> float:
    started = time.perf_counter()
    publisher.publish_batch(jobs, _send, Dispatcher())
    return time.perf_counter() - started


def _send(messages: Sequence[Message]) -> None:
    """A broker that costs nothing."""


def _execute(statement: str, parameters: Mapping[str, Any] | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)

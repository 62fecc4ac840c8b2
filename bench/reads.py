"""Reads of single jobs from the web role as the Procfile starts it: how many, at what cost, beside intake, and how
soon they show that a job has ended."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from django.db import connection
from django.db.models.functions import Now

from bench import broker
from bench.catalogue import BenchFailed
from bench.children import Children, Process
from bench.console import Progress, note
from bench.figures import Figure, percentile
from bench.target import LOOPBACK
from bench.web import Web
from core.ids import new_id
from jobs import notices, transitions
from jobs.models import Job
from jobs.states import Outcome, State
from jobs.transitions import Ending
from tenants.models import ApiKey, Tenant

READS_BAR, P99_BAR, HITS_BAR = 1500.0, 50.0, 90.0  # a second; ms; %
INTAKE_BAR, SLOWER_BAR = 200.0, 2.0  # ms; times
MEDIAN_BAR, WORST_BAR = 200.0, 2000.0  # ms
WARM_UP_SECONDS = 2
POSTS_A_SECOND, POSTERS = 50, 4
ASK_SECONDS = 0.005
HEARD_SECONDS, ROLES_SECONDS = 1.0, 60.0  # what shows that publisher and events are up, and how long that may take


@dataclass(slots=True)
class Seen:
    """What clients saw."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, output: bytes) -> None:
        """Raises BenchFailed unless every answer was the right one."""
        document = json.loads(output)
        self.milliseconds += document["milliseconds"]
        self.statuses.update(document["statuses"])
        if set(self.statuses) - {"200", "202"}:
            raise BenchFailed(f"The answers were {dict(self.statuses)}.")


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """Three parts: readers alone, endings, and readers beside intake, whose jobs nobody is to publish."""
    tenant = Tenant.objects.create(name=f"bench-{uuid.uuid4().hex[:12]}")
    _, key = ApiKey.issue(tenant)
    with Children(folder) as children:
        web = Web.start(children)
        figures = _reading(web, tenant, key, sizes)
        with broker.reserved(os.environ["BROKER_URL"]), Children(folder) as roles:
            for role in ("publisher", "events"):
                roles.role(role)
            figures += _endings(roles, web, tenant, key, sizes["endings"])
        figures += _storm(children, web, tenant, key, sizes)
    return figures


_END_OTHERS = """
SELECT pg_stat_force_next_flush(), pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""

# --- readers alone --------------------------------------------------------------------------------------------------


def _reading(web: Web, tenant: Tenant, key: str, sizes: Mapping[str, int]) -> list[Figure]:
    """Half of the jobs are still running, as for somebody who waits for a batch."""
    jobs = [_make(tenant, State.RUNNING if number % 2 else State.SUCCEEDED) for number in range(sizes["jobs"])]
    seconds = sizes["seconds"]
    _read(web, key, jobs, WARM_UP_SECONDS, sizes["readers"])
    reads_before, cpu = _reads_of_rows(), web.cpu_seconds()
    note(f"    {sizes['readers']} readers of {len(jobs)} jobs for {seconds} s")
    seen = _read(web, key, jobs, seconds, sizes["readers"])
    cpu, reads = web.cpu_seconds() - cpu, len(seen.milliseconds)
    misses = _reads_of_rows() - reads_before
    return [
        Figure("reads a second", reads / seconds, "reads/s", bar=READS_BAR, more_is_better=True),
        Figure("a read, p50", percentile(seen.milliseconds, 0.5), "ms"),
        Figure("a read, p99", percentile(seen.milliseconds, 0.99), "ms", bar=P99_BAR),
        Figure("web processes", cpu / reads * 1000, "ms CPU/read"),
        Figure("answered by the cache", 100 * (1 - misses / reads), "%", bar=HITS_BAR, more_is_better=True),
    ]


def _read(web: Web, key: str, jobs: Sequence[Job], seconds: float, readers: int) -> Seen:
    seen = Seen()
    client = _readers(web, key, seconds, readers)
    output, _ = client.communicate("\n".join(str(job.id) for job in jobs).encode(), timeout=seconds + 60)
    seen.add(output)
    return seen


def _readers(web: Web, key: str, seconds: float, readers: int) -> Process:
    command = [sys.executable, "-m", "bench.reader", str(web.port), key, str(seconds), str(readers)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _reads_of_rows() -> int:
    """How often the table of jobs was looked into. The server's connections tell what they have counted when they end,
    so they are ended; whoever needs one makes another."""
    with connection.cursor() as cursor:
        cursor.execute(_END_OTHERS)
        time.sleep(1.0)
        cursor.execute("SELECT coalesce(idx_scan, 0) + seq_scan FROM pg_stat_user_tables WHERE relname = 'jobs_job'")
        (count,) = cursor.fetchone()
    return int(count)


# --- endings --------------------------------------------------------------------------------------------------------


def _endings(roles: Children, web: Web, tenant: Tenant, key: str, count: int) -> list[Figure]:
    """From the commit of an ending to the first answer that shows it, for a reader who never stops asking."""
    progress, late = Progress("endings", count), []
    roles.wait_until(
        lambda: _seconds_until_seen(roles, web, tenant, key) < HEARD_SECONDS,
        seconds=ROLES_SECONDS,
        what="endings are heard of",
    )
    for number in range(count):
        late.append(_seconds_until_seen(roles, web, tenant, key) * 1000)
        progress.show(number)
    return [
        Figure("an ending is seen after, median", statistics.median(late), "ms", bar=MEDIAN_BAR),
        Figure("an ending is seen after, worst", max(late), "ms", bar=WORST_BAR),
    ]


def _seconds_until_seen(roles: Children, web: Web, tenant: Tenant, key: str) -> float:
    job, seen_at = _make(tenant, State.RUNNING), list[float]()
    asking = threading.Thread(target=_ask_until_final, args=(web.port, key, job, seen_at), daemon=True)
    asking.start()
    time.sleep(random.uniform(0.1, 2.0))  # the answer may be of any age when the job ends
    transitions.finish([_success(job)])
    ended_at = time.monotonic()
    notices.work_waits()  # as the worker does
    asking.join(30)
    roles.watch()
    if not seen_at:
        raise BenchFailed("A job that had ended was never shown so.")
    return max(0.0, seen_at[0] - ended_at)


def _ask_until_final(port: int, key: str, job: Job, seen_at: list[float]) -> None:
    with closing(HTTPConnection(LOOPBACK, port, timeout=10)) as link:
        for _ in range(5000):
            link.request("GET", f"/api/v1/jobs/{job.id}", headers={"Authorization": f"Bearer {key}"})
            if b'"succeeded"' in link.getresponse().read():
                seen_at.append(time.monotonic())
                return
            time.sleep(ASK_SECONDS)


# --- readers beside intake ------------------------------------------------------------------------------------------


def _storm(children: Children, web: Web, tenant: Tenant, key: str, sizes: Mapping[str, int]) -> list[Figure]:
    """Intake at a steady rate, in turn alone and beside clients that ask without a pause, so that a busy moment of the
    machine hits both."""
    job = _make(tenant, State.RUNNING)
    quiet, stormy, storm = Seen(), Seen(), Seen()
    seconds, rounds = sizes["seconds"], sizes["rounds"]
    _post(children, web, key, WARM_UP_SECONDS)
    for number in range(rounds):
        note(
            f"    {POSTS_A_SECOND} posts a second, alone and beside {sizes['storm']} readers, {number + 1} of {rounds}"
        )
        quiet.add(_post(children, web, key, seconds))
        client = _readers(web, key, seconds + 1, sizes["storm"])
        assert client.stdin is not None
        client.stdin.write(str(job.id).encode())
        client.stdin.close()
        client.stdin = None
        stormy.add(_post(children, web, key, seconds))
        storm.add(client.communicate(timeout=seconds + 60)[0])
    before, during = percentile(quiet.milliseconds, 0.99), percentile(stormy.milliseconds, 0.99)
    return [
        Figure("reads a second in the storm", len(storm.milliseconds) / rounds / (seconds + 1), "reads/s"),
        Figure("intake, p99 when quiet", before, "ms"),
        Figure("intake, p99 in the storm", during, "ms", bar=INTAKE_BAR),
        Figure("the storm beside the quiet, p99", during / before, "times", bar=SLOWER_BAR),
        Figure(
            "the storm beside the quiet, p50",
            percentile(stormy.milliseconds, 0.5) / percentile(quiet.milliseconds, 0.5),
            "times",
        ),
    ]


def _post(children: Children, web: Web, key: str, seconds: int) -> bytes:
    arguments = (str(web.port), key, str(seconds), str(POSTERS), str(POSTS_A_SECOND))
    output, _ = children.python("bench.poster", *arguments).communicate(timeout=seconds + 60)
    return output


# --- jobs ---------------------------------------------------------------------------------------------------------


def _success(job: Job) -> Ending:
    return Ending(
        job.id, job.claim_no, State.SUCCEEDED, Outcome.SUCCEEDED, "succeeded",
        http_status=200, result_key=f"bench/{job.id}", result_bytes=1, result_sha256="0" * 64, result_final_url=job.url,
    )  # fmt: skip


def _make(tenant: Tenant, state: State) -> Job:
    """A running job, which has really succeeded where that is asked for."""
    job = Job.objects.create(
        id=new_id(), tenant=tenant, url="https://example.com/some/page?number=1", host="example.com:443",
        deadline_seconds=30, max_attempts=5, max_bytes=1000, state=State.QUEUED, tags=["bench"], published_at=Now(),
    )  # fmt: skip
    ticket = transitions.ClaimTicket(job.id, 0)
    transitions.claim([ticket], worker="bench", executors=["http"])
    job.refresh_from_db()
    if state == State.SUCCEEDED:
        transitions.finish([_success(job)])
    return job

"""Scenarios that take a whole pool: real processes of every role, real servers, and something that breaks.

`test_scenarios.py` lists which of the fifteen stand here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest

from devstack.layout import ROOT
from tests.faults.arena import LEASE_SECONDS, SWEEP_SECONDS, Arena
from tests.faults.conftest import SLOTS
from tests.faults.inflict import local_ports
from tests.faults.pool import Member
from tests.faults.proxy import Proxy
from tests.faults.target import Visit
from tests.faults.verify import Bucket

RECOVERY_SECONDS = 10.0  # from the end of an outage to the first claim
SEND_AND_DIE = """
import os, signal
import django
django.setup()
from jobs import publisher
from jobs.bus import Bus

bus = Bus()

def send_and_die(messages):
    bus.send_all(messages)
    os.kill(os.getpid(), signal.SIGKILL)

publisher.publish_batch(10, send_and_die)
"""


def visits(field: Arena, job: uuid.UUID) -> list[Visit]:
    """The job's requests, as the target saw them."""
    (name,) = field.job(job, "tags[1]")
    return [visit for visit in field.target.visits if visit.job == name]


def never_two_live(seen: Sequence[Visit]) -> bool:
    """Whether each request was over before the next began."""
    return all(one.end is not None and one.end <= other.start for one, other in pairwise(seen))


def all_are(field: Arena, state: str, jobs: Sequence[uuid.UUID]) -> Callable[[], bool]:
    return lambda: field.count(state, jobs) == len(jobs)


def seconds_to_claim(field: Arena, job: uuid.UUID, *, claim_no: int, since: float) -> float:
    """From `since` (Unix seconds) to the claim, once it has been made."""

    def claimed() -> bool:
        return bool(field.job(job, "claim_no")[0] >= claim_no)

    field.until(claimed, seconds=60, what=f"claim {claim_no} of the job")
    return float(field.job(job, "extract(epoch FROM claimed_at)")[0]) - since


def until_connected(field: Arena, member: Member, road: Proxy) -> None:
    """Wait for a process that was started again to use its server."""
    field.until(
        lambda: member.alive and bool(local_ports(member.pid, to=road.port)), seconds=60, what=f"{member.name} is back"
    )


@contextmanager
def stopped(members: Sequence[Member]) -> Iterator[None]:
    """SIGSTOP now, SIGCONT at the end."""
    for member in members:
        os.killpg(member.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for member in members:
            os.killpg(member.pid, signal.SIGCONT)


def test_a_killed_workers_jobs_all_run_again(field: Arena) -> None:
    """The runner starts a worker on the same host at once; it does not inherit the leases, which run out."""
    victim, other = field.pool.of("worker")
    field.pool.hold(other)
    field.until(field.is_ready, seconds=60, what="one worker left")
    jobs = [field.post("hangs=1") for _ in range(SLOTS)]
    field.until(all_are(field, "running", jobs), seconds=60, what="all slots taken")
    field.pool.release(other)
    field.until(field.is_ready, seconds=60, what="another worker")
    killed_at = time.time()
    field.pool.kill(victim)
    field.until(all_are(field, "succeeded", jobs), seconds=60, what="all ended elsewhere")
    rows = field.rows(
        "SELECT claim_no, losses, extract(epoch FROM claimed_at) FROM jobs_job WHERE id = ANY(%s)", list(jobs)
    )
    assert {(claim_no, losses) for claim_no, losses, _ in rows} == {(2, 1)}
    assert max(float(claimed_at) for *_, claimed_at in rows) - killed_at < LEASE_SECONDS + SWEEP_SECONDS + 5


def test_a_job_outlives_its_workers_connections(field: Arena) -> None:
    """They break once a second; the lease is renewed on new ones, or the worker stops the attempt itself."""
    job = field.post("seconds=5")
    field.until(all_are(field, "running", [job]), seconds=60, what="running")
    for _ in range(4):
        field.database_road.reset()
        time.sleep(1.0)
    field.until(all_are(field, "succeeded", [job]), seconds=60, what="ended")
    assert never_two_live(visits(field, job))


def test_an_outage_of_postgresql_leaves_no_two_live_attempts(field: Arena) -> None:
    """Longer than a lease; so long that a wait that doubles each time would be over too late."""
    job = field.post("hangs=1")
    field.until(lambda: bool(visits(field, job)), seconds=60, what="running")
    cut_at = time.time()
    field.database_road.cut()
    field.until(lambda: visits(field, job)[0].end is not None, seconds=LEASE_SECONDS + 1, what="stopped by itself")
    time.sleep(max(0.0, cut_at + 16.0 - time.time()))
    field.database_road.mend()
    assert seconds_to_claim(field, job, claim_no=2, since=time.time()) < RECOVERY_SECONDS
    field.until(all_are(field, "succeeded", [job]), seconds=60, what="ended")
    assert never_two_live(visits(field, job))
    assert field.job(field.post(), "state")


@pytest.mark.parametrize("lost", ["the way to the broker", "Redis"])
def test_intake_goes_on_without_broker_or_cache_and_the_pool_comes_back(field: Arena, lost: str) -> None:
    redis = field.servers.redis
    cut, mend = (redis.stop, redis.start) if lost == "Redis" else (field.broker_road.cut, field.broker_road.mend)
    cut()
    jobs = [field.post() for _ in range(5)]
    time.sleep(3.0)
    mend()
    mended_at = time.time()
    assert min(seconds_to_claim(field, job, claim_no=1, since=mended_at) for job in jobs) < RECOVERY_SECONDS
    field.until(all_are(field, "succeeded", jobs), seconds=60, what="all ended")


def test_consuming_survives_resets_without_a_restart(field: Arena) -> None:
    ends = [member.ends for member in field.pool.members]
    jobs: list[uuid.UUID] = []
    for _ in range(6):
        jobs += [field.post() for _ in range(3)]
        field.broker_road.reset()
        time.sleep(0.7)
    field.until(all_are(field, "succeeded", jobs), seconds=60, what="all ended")
    assert [member.ends for member in field.pool.members] == ends
    assert all(len(visits(field, job)) == 1 for job in jobs)


def test_sweeping_goes_on_when_the_sweeper_is_killed(field: Arena) -> None:
    """Whichever of the two is killed and stays away, leases that run out are found."""
    for sweeper in field.pool.of("sweeper"):
        field.pool.hold(sweeper)
        job = field.post(run_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat())  # nobody publishes it meanwhile
        field.rows(
            "UPDATE jobs_job SET state = 'running', claim_no = 1, attempts = 1, worker = 'gone', claimed_at = now(), "
            "lease_expires_at = now() - interval '1 second' WHERE id = %s",
            job,
        )
        field.until(all_are(field, "succeeded", [job]), seconds=30, what="swept, and run")
        field.pool.release(sweeper)
        until_connected(field, sweeper, field.broker_road)


def test_sigterm_at_full_slots_frees_them_and_the_backlog_drains(field: Arena) -> None:
    hanging = [field.post("hangs=1") for _ in range(2 * SLOTS)]
    field.until(all_are(field, "running", hanging), seconds=60, what="all slots taken")
    backlog = [field.post() for _ in range(10)]
    for worker in field.pool.of("worker"):
        worker.process.send_signal(signal.SIGTERM)
    field.until(all_are(field, "succeeded", hanging + backlog), seconds=90, what="everything ended")
    used = field.rows("SELECT DISTINCT attempts, losses FROM jobs_job WHERE id = ANY(%s)", hanging)
    assert used == [(1, 0)], "a release uses up no attempt"


def test_a_publisher_killed_before_its_mark_makes_one_run(field: Arena) -> None:
    """Both messages lie in the queue before any worker takes one."""
    publishers = field.pool.of("publisher")
    with stopped(field.pool.of("worker")):
        for member in publishers:
            field.pool.hold(member)
        job = field.post()
        script = [sys.executable, "-c", SEND_AND_DIE]
        done = subprocess.run(script, cwd=ROOT, env={**os.environ, **field.environment}, timeout=60)
        assert done.returncode == -signal.SIGKILL
        assert field.job(job, "published_at") == (None,)
        for member in publishers:
            field.pool.release(member)
        field.until(lambda: field.job(job, "published_at") != (None,), seconds=60, what="sent again, and marked")
    field.until(all_are(field, "succeeded", [job]), seconds=60, what="ended")
    time.sleep(1.0)  # the second message is taken, too
    assert len(visits(field, job)) == 1
    assert field.job(job, "claim_no") == (1,)


def test_another_publisher_takes_over(field: Arena) -> None:
    """Both are killed in turn, so that one of them was the leader."""
    for publisher in field.pool.of("publisher"):
        field.pool.hold(publisher)
        killed_at = time.time()
        assert seconds_to_claim(field, field.post(), claim_no=1, since=killed_at) < RECOVERY_SECONDS
        field.pool.release(publisher)
        until_connected(field, publisher, field.database_road)


def test_a_result_whose_status_was_lost_is_made_again(field: Arena) -> None:
    """The worker stored the response and died before the database took its word: the object is an orphan."""
    bucket = Bucket(field.settings)
    with psycopg.connect(field.settings["DATABASE_URL"]) as link:
        link.execute("LOCK TABLE jobs_attempt IN SHARE ROW EXCLUSIVE MODE")  # an end cannot be recorded
        job = field.post()
        field.until(lambda: any(f"/{job}/1" in key for key in bucket.list()), seconds=60, what="stored")
        pid = int(field.job(job, "worker")[0].split(":")[-2])
        field.pool.kill(next(member for member in field.pool.of("worker") if member.pid == pid))
        field.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        link.rollback()
    field.until(all_are(field, "succeeded", [job]), seconds=60, what="ended elsewhere")
    claim_no, key = field.job(job, "claim_no", "result_key")
    assert (claim_no, key.rpartition("/")[2]) == (2, "2")
    assert bucket.read(key)
    field.until(lambda: {one for one in bucket.list() if f"/{job}/" in one} == {key}, seconds=60, what="no orphan")

"""The engine of a worker process, with real targets, database and storage."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from devstack.demo_site import DemoSite
from jobs import counters, transitions
from jobs.models import Attempt, Job, WorkerProcess
from jobs.states import State
from results.storage import result_key, signed_link
from scraper.engine import Engine
from scraper.ledger import _finish
from tests import lifecycle
from tests.faults.proxy import Proxy
from tests.scraper.engines import final, make_job, running_engine, take, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def site() -> Iterator[DemoSite]:
    with DemoSite() as site:
        yield site


def test_a_job_is_claimed_fetched_stored_and_finished(site: DemoSite) -> None:
    job = make_job(site, "/bytes/3000")
    with running_engine(site) as engine:
        assert take(engine, job)
        final(job)
    assert (job.state, job.result_bytes, job.result_http_status, job.attempts) == (State.SUCCEEDED, 3000, 200, 1)
    assert job.result_key == result_key(job.tenant_id, job.id, 1)
    with urllib.request.urlopen(signed_link(job.result_key, filename="x")) as answer:
        assert len(answer.read()) == 3000
    attempt = Attempt.objects.get(job=job)
    assert (attempt.outcome, attempt.worker, attempt.http_status) == ("succeeded", "engine-under-test", 200)
    assert attempt.timings["total"] > 0


def test_a_message_twice_runs_the_job_once(site: DemoSite) -> None:
    job = make_job(site, "/slow?seconds=1")
    with running_engine(site) as engine:
        engine.send(job, job)  # together, so that they are claimed by one statement
        engine.send(job)
        engine.send(job)
        wait_for(lambda: len(engine.inbox.settled) == 4, "all are settled")
        final(job)
    assert (len(engine.inbox.settled), len(site.log), job.claim_no) == (4, 1, 1)


def test_a_full_engine_claims_nothing_more_until_a_slot_is_free(site: DemoSite) -> None:
    first, second = make_job(site, "/slow?seconds=1"), make_job(site, "/fast")
    with running_engine(site, slots=1) as engine:
        take(engine, first)
        asked = len(engine.inbox.asked_for)
        engine.send(second)
        time.sleep(0.2)
        assert Job.objects.get(pk=second.pk).state == State.QUEUED
        assert len(engine.inbox.asked_for) == asked, "it asked for what it has no room for"
        assert final(second).state == State.SUCCEEDED
    assert Attempt.objects.get(job=first).finished_at <= Attempt.objects.get(job=second).started_at


def test_storage_that_is_down_is_a_temporary_error_and_the_attempt_is_recorded(site: DemoSite, settings: Any) -> None:
    settings.S3_ENDPOINT_URL = "http://127.0.0.1:9"
    job = make_job(site, "/fast")
    with running_engine(site) as engine:
        take(engine, job)
        wait_for(lambda: Attempt.objects.filter(job=job).exists(), "the attempt ended")
    job.refresh_from_db()
    assert (job.state, job.error_code, job.result_key) == (State.QUEUED, "storage_unavailable", "")
    assert Attempt.objects.get(job=job).http_status == 200


def test_nothing_is_claimed_while_the_storage_is_away(site: DemoSite, settings: Any) -> None:
    with Proxy.to(settings.S3_ENDPOINT_URL) as road:
        settings.S3_ENDPOINT_URL = road.instead_of(settings.S3_ENDPOINT_URL)
        first, second = make_job(site, "/fast"), make_job(site, "/fast")
        with running_engine(site) as engine:
            road.cut()
            take(engine, first)
            wait_for(lambda: Attempt.objects.filter(job=first).exists(), "the first attempt ended")
            engine.send(second)
            time.sleep(1.5)
            assert Job.objects.get(pk=second.pk).state == State.QUEUED
            road.mend()
            assert final(second).attempts == 1
            first.refresh_from_db()
            take(engine, first)
            assert final(first).attempts == 2


@pytest.mark.parametrize(
    ("heard_by", "heartbeat_seconds"), [("notice", 30.0), ("heartbeat", 0.2)], ids=["by notice", "by heartbeat"]
)
def test_a_cancelled_job_is_stopped_midway(site: DemoSite, heard_by: str, heartbeat_seconds: float) -> None:
    job = make_job(site, "/slow?seconds=30")
    with running_engine(site, heartbeat_seconds=heartbeat_seconds, lease_seconds=100.0) as engine:
        if heard_by == "heartbeat":
            engine._notices.stop()
        else:
            wait_for(_somebody_listens, "the engine listens")
        take(engine, job)
        asked = time.monotonic()
        transitions.request_cancel(job.id, job.tenant_id)
        final(job)
        assert time.monotonic() - asked < 2
    assert job.state == State.CANCELLED
    assert Attempt.objects.get(job=job).outcome == "cancelled"


def _somebody_listens() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = %s",
            ["LISTEN jobs_cancel"],
        )
        return bool(cursor.fetchone()[0])


def test_a_result_that_comes_too_late_is_refused_and_its_object_deleted(site: DemoSite) -> None:
    job = make_job(site, "/slow?seconds=1")
    with running_engine(site, heartbeat_seconds=60.0, lease_seconds=1.0) as engine:
        take(engine, job)
        Job.objects.filter(pk=job.pk).update(lease_expires_at="2020-01-01T00:00:00Z")
        transitions.expire_leases(10)
        current = lifecycle.claim_now(job, worker="another")
        wait_for(lambda: engine.stale_attempts == 1, "the late result was refused")
    assert counters.total(counters.STALE_ATTEMPTS) == 1
    job.refresh_from_db()
    assert (job.state, job.worker, job.claim_no) == (State.RUNNING, "another", 2)
    key = result_key(job.tenant_id, job.id, 1)
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(signed_link(key, filename="x"))
    assert missing.value.code == 404
    assert current.claim_no == 2


def test_a_lost_lease_stops_the_attempt_at_the_next_heartbeat(site: DemoSite) -> None:
    job = make_job(site, "/slow?seconds=30")
    with running_engine(site) as engine:
        take(engine, job)
        Job.objects.filter(pk=job.pk).update(lease_expires_at="2020-01-01T00:00:00Z")
        with connection.cursor() as cursor:  # as the sweeper does, but before the heartbeat can renew
            cursor.execute(
                "UPDATE jobs_job SET state = 'queued', lease_expires_at = NULL WHERE id = %s AND state = 'running'",
                [job.id],
            )
        wait_for(lambda: engine.stale_attempts == 1, "the attempt was stopped")


def test_without_heartbeats_the_process_stops_its_attempts_itself(site: DemoSite) -> None:
    """The database is out of reach for renewals alone: their statement waits for a lock that is not given."""
    job = make_job(site, "/slow?seconds=30")
    with running_engine(site, heartbeat_seconds=0.2, lease_seconds=30.0) as engine:
        take(engine, job)
        wait_for(lambda: Job.objects.filter(pk=job.pk, state=State.RUNNING).exists(), "claimed")
        started = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("LOCK TABLE jobs_workerprocess IN ACCESS EXCLUSIVE MODE")
            wait_for(lambda: any(entry["end"] for entry in list(site.log)) or _gone(engine), "stopped by itself")
            assert time.monotonic() - started < 3
            cursor.execute("ROLLBACK")
        wait_for(lambda: Job.objects.filter(pk=job.pk, state=State.QUEUED).exists(), "given back")
    job.refresh_from_db()
    assert (job.attempts, job.reason) == (0, "lease_lost")


def test_a_claim_that_waited_out_an_outage_has_its_whole_lease(site: DemoSite) -> None:
    """The wait must not count as missed heartbeats: the POST would be stopped midway, and never be repeated."""
    job = make_job(site, "/slow?seconds=0.5", method="POST")
    with running_engine(site, heartbeat_seconds=0.4) as engine, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job RENAME TO jobs_job_away")
        engine.send(job)
        time.sleep(2.0)
        cursor.execute("ALTER TABLE jobs_job_away RENAME TO jobs_job")
        final(job)
    assert (job.state, job.claim_no, len(site.log)) == (State.SUCCEEDED, 1, 1)


def _gone(engine: Engine) -> bool:
    return all(attempt.stop is not None for attempt in engine._running.values())


def test_a_stopping_engine_takes_nothing_and_gives_back_what_runs(site: DemoSite) -> None:
    running, late = make_job(site, "/slow?seconds=30"), make_job(site, "/fast")
    with running_engine(site) as engine:
        take(engine, running)
        engine.refuse()
        time.sleep(0.1)
        engine.send(late)
    assert engine.inbox.waiting.qsize() == 1
    running.refresh_from_db()
    assert (running.state, running.attempts, running.reason) == (State.QUEUED, 0, "worker_shutdown")
    assert not WorkerProcess.objects.exists()


def test_messages_in_hand_go_back_when_the_engine_stops_while_the_database_is_away(site: DemoSite) -> None:
    jobs = [make_job(site, "/fast") for _ in range(3)]
    with running_engine(site) as engine, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job RENAME TO jobs_job_away")
        engine.send(*jobs)
        wait_for(lambda: len(engine.inbox.in_hand) > 0, "pulled")
        engine.refuse()
        wait_for(lambda: not engine.inbox.in_hand, "given back")
        cursor.execute("ALTER TABLE jobs_job_away RENAME TO jobs_job")
    held = len(engine.inbox.given_back) + engine.inbox.waiting.qsize()
    assert (held, engine.inbox.settled) == (3, [])
    assert Job.objects.filter(state=State.QUEUED, claim_no=0).count() == 3


def test_a_job_cancelled_while_it_is_claimed_is_not_fetched(site: DemoSite) -> None:
    job = make_job(site, "/slow?seconds=30")
    with running_engine(site, heartbeat_seconds=30.0, lease_seconds=100.0) as engine:
        with connection.cursor() as cursor, transaction.atomic():
            cursor.execute("SELECT FROM jobs_job WHERE id = %s FOR UPDATE", [job.id])
            engine.send(job)
            wait_for(lambda: len(engine.inbox.in_hand) == 1, "pulled")
            time.sleep(0.2)  # the claim waits for the row
            engine.cancel(job.id)
            time.sleep(0.1)
        final(job)
    assert (job.state, len(site.log)) == (State.CANCELLED, 0)


def test_every_slot_is_free_again_after_all_kinds_of_ends(site: DemoSite) -> None:
    """A slot that leaks is gone until the process ends: after more ends than slots all of them take part again."""
    paths = ["/fast", "/missing", "/flaky/x", "/slow?seconds=30", "/fast"]
    ended = [make_job(site, path, max_attempts=1) for path in paths]
    gone = make_job(site, "/fast")
    transitions.request_cancel(gone.id, gone.tenant_id)
    with running_engine(site, slots=2) as engine:
        engine.send(*ended, gone, gone)
        wait_for(lambda: Job.objects.get(pk=ended[3].pk).state == State.RUNNING, "the slow one runs")
        transitions.request_cancel(ended[3].id, ended[3].tenant_id)
        for job in ended:
            final(job)
        wait_for(lambda: len(engine.inbox.settled) == 7, "all are settled")
        last = [make_job(site, "/slow?seconds=0.5") for _ in range(2)]
        engine.send(*last)
        wait_for(lambda: Job.objects.filter(state=State.RUNNING).count() == 2, "both slots are in use")


def test_a_post_cut_off_by_shutdown_is_not_repeated(site: DemoSite) -> None:
    job = make_job(site, "/slow?seconds=30", method="POST")
    with running_engine(site) as engine:
        take(engine, job)
        wait_for(lambda: Job.objects.filter(pk=job.pk, state=State.RUNNING).exists(), "claimed")
    job.refresh_from_db()
    assert (job.state, job.error_code) == (State.FAILED, "unsafe_to_retry")


def test_an_ending_that_the_database_refuses_harms_no_other(site: DemoSite) -> None:
    """NUL cannot be stored; the job that brought it ends without its evidence, its neighbours end as they should."""
    poison, neighbour = lifecycle.submit(), lifecycle.submit()
    claims = [lifecycle.claim_now(poison), lifecycle.claim_now(neighbour)]
    with running_engine(site) as engine:
        ledger = engine._ledger
        group = [
            lifecycle.failure(claims[0], "http_500", body_snippet="a\x00b"),
            lifecycle.success(claims[1]),
        ]
        written = _in_loop(engine, ledger._finish_group(group))
    assert [one.name for one in written] == ["YES", "YES"]
    poison.refresh_from_db()
    neighbour.refresh_from_db()
    assert (poison.state, poison.error_code) == (State.FAILED, "http_500")
    assert neighbour.state == State.SUCCEEDED


def _in_loop(engine: Engine, coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, engine._loop).result(timeout=10)


def test_a_finish_whose_answer_was_lost_counts_as_written() -> None:
    ending = lifecycle.success(lifecycle.claim_now(lifecycle.submit()))
    transitions.finish([ending])
    assert _finish([ending], unsure=False) == set()
    assert _finish([ending], unsure=True) == {(ending.job_id, ending.claim_no)}


def test_a_cancel_does_not_wait_for_a_storage_that_hangs(site: DemoSite, settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        settings.S3_ENDPOINT_URL = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job = make_job(site, "/fast")
        with running_engine(site, heartbeat_seconds=30.0, lease_seconds=100.0) as engine:
            take(engine, job)
            silent.accept()  # the upload has begun
            asked = time.monotonic()
            transitions.request_cancel(job.id, job.tenant_id)
            final(job)
            assert time.monotonic() - asked < 2
    assert job.state == State.CANCELLED
    assert Attempt.objects.get(job=job).object_left

"""GET /jobs/{id} through the cache: what it costs, what it shows while the job moves, and without Redis."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.errors import NotFound
from devstack.redis_server import binary
from jobs import transitions
from jobs.models import Job
from query import tasks
from query.answers import JobAnswer
from query.cache import PATIENCE_SECONDS, AnswerCache
from query.reading import forget, read_job
from query.versions import Version
from tenants.models import Tenant
from tests import lifecycle
from tests.factories import client_of, make_tenant, member_client

NOWHERE = "redis://127.0.0.1:9/0"


def path_of(job: Job) -> str:
    return f"/api/v1/jobs/{job.id}"


def status_in(answer: JobAnswer) -> str:
    return answer.body.decode().partition('"status":"')[2].partition('"')[0]


@pytest.mark.django_db
def test_a_hit_asks_the_database_nothing_at_all(tenant: Tenant) -> None:
    job, client = lifecycle.submit(tenant), client_of(tenant)
    first = client.get(path_of(job))
    with CaptureQueriesContext(connection) as queries:
        again = client.get(path_of(job))
    assert (again.status_code, again.content, again["ETag"]) == (200, first.content, first["ETag"])
    assert [query["sql"] for query in queries] == []


@pytest.mark.django_db
def test_who_has_the_answer_gets_no_body_and_costs_no_query(tenant: Tenant) -> None:
    job, client = lifecycle.submit(tenant), client_of(tenant)
    etag = client.get(path_of(job))["ETag"]
    for sent in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(path_of(job), headers={"If-None-Match": sent})
        assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", etag)
        assert answer["Cache-Control"] == "private, no-cache"
        assert "Content-Type" not in answer
        assert len(queries) == 0
    for sent in ('"other"', "nonsense", "", '"'):
        assert client.get(path_of(job), headers={"If-None-Match": sent}).status_code == 200


@pytest.mark.django_db
def test_the_etag_changes_with_the_job_and_with_nothing_else(tenant: Tenant) -> None:
    job, client = lifecycle.submit(tenant), client_of(tenant)
    first = client.get(path_of(job))["ETag"]
    forget(job.id)
    assert client.get(path_of(job))["ETag"] == first, "read anew, it looks the same"
    lifecycle.claim_now(job)
    forget(job.id)
    changed = client.get(path_of(job), headers={"If-None-Match": first})
    assert (changed.status_code, changed.json()["status"]) == (200, "running")
    assert changed["ETag"] != first


@pytest.mark.django_db
def test_another_tenants_question_is_404_from_the_cache_too(tenant: Tenant) -> None:
    job, stranger = lifecycle.submit(tenant), client_of(make_tenant())
    etag = client_of(tenant).get(path_of(job))["ETag"]
    assert stranger.get(path_of(job)).status_code == 404
    assert stranger.get(path_of(job), headers={"If-None-Match": etag}).status_code == 404
    assert stranger.get(path_of(job), headers={"If-None-Match": "*"}).status_code == 404


@pytest.mark.django_db
def test_a_person_sees_the_same_as_a_page(tenant: Tenant) -> None:
    job, browser = lifecycle.submit(tenant), member_client(tenant)
    for _ in range(2):
        page = browser.get(path_of(job))
        assert (page.status_code, page["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "pool_busy" in page.content.decode()
        assert "ETag" not in page


def reads_counted(count: list[int]) -> Callable[..., Any]:
    """Counts the reads of jobs on a thread's connection."""

    def wrapper(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if 'FROM "jobs_job"' in sql:
            count.append(1)
        return execute(sql, *rest)

    return wrapper


@pytest.mark.django_db(transaction=True)
def test_fifty_readers_at_once_cost_one_query_in_two_processes_as_well() -> None:
    job = lifecycle.submit(make_tenant())
    processes = [AnswerCache(settings.REDIS_URL) for _ in range(2)]
    for one in processes:
        one.recall([str(uuid.uuid4())])
    count: list[int] = []
    together = threading.Barrier(50)

    def read(number: int) -> bytes:
        together.wait(10)
        try:
            with connection.execute_wrapper(reads_counted(count)):
                return read_job(job.tenant_id, job.id, answers=processes[number % 2]).body
        finally:
            connection.close()

    with ThreadPoolExecutor(50) as pool:
        bodies = set(pool.map(read, range(50)))
    assert (len(bodies), len(count)) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_many_who_ask_for_what_does_not_exist_do_not_wait_for_each_other() -> None:
    tenant, answers, began = make_tenant(), AnswerCache(settings.REDIS_URL), time.monotonic()
    unknown = uuid.uuid4()
    for _ in range(20):
        with pytest.raises(NotFound):
            read_job(tenant.id, unknown, answers=answers)
    assert time.monotonic() - began < 20 * 0.3


class Halting(AnswerCache):
    """A process that is stopped between its read of the row and its write to the cache."""

    def __init__(self) -> None:
        super().__init__(settings.REDIS_URL)
        self.has_read = threading.Event()
        self.may_write = threading.Event()
        self.wrote: bool | None = None

    def remember(self, answer: JobAnswer, job_id: uuid.UUID, version: Version, *rest: Any) -> bool:
        self.has_read.set()
        assert self.may_write.wait(30)
        self.wrote = super().remember(answer, job_id, version, *rest)
        return self.wrote


@contextmanager
def overtaken_reader(job: Job) -> Iterator[Halting]:
    """A reader that has read the job as it is now; on leaving, it writes what it has read."""
    halting = Halting()

    def read() -> None:
        try:
            read_job(job.tenant_id, job.id, answers=halting)
        finally:
            connection.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert halting.has_read.wait(30)
        yield halting
    finally:
        halting.may_write.set()
        thread.join(30)
        assert halting.wrote is not None


def shown(job: Job) -> str:
    return status_in(read_job(job.tenant_id, job.id))


@pytest.mark.django_db(transaction=True)
def test_a_reader_that_the_finish_overtook_leaves_no_stale_answer() -> None:
    job = lifecycle.submit(make_tenant())
    claimed = lifecycle.claim_now(job)
    with overtaken_reader(job) as reader:
        assert lifecycle.finish(lifecycle.success(claimed))
        tasks.forget_job(str(job.id))
    assert reader.wrote is False
    assert shown(job) == "succeeded"


@pytest.mark.django_db(transaction=True)
def test_a_reader_that_a_newer_one_overtook_leaves_no_stale_answer() -> None:
    """Also where the finish event is lost."""
    job = lifecycle.submit(make_tenant())
    claimed = lifecycle.claim_now(job)
    with overtaken_reader(job) as reader:
        lifecycle.finish(lifecycle.success(claimed))
        assert shown(job) == "succeeded", "it waits for the first reader, gives up, and looks itself"
    assert reader.wrote is False
    assert shown(job) == "succeeded"


@pytest.mark.django_db(transaction=True)
def test_a_finish_that_nobody_hears_of_is_seen_within_two_seconds() -> None:
    job = lifecycle.submit(make_tenant())
    claimed = lifecycle.claim_now(job)
    with overtaken_reader(job) as reader:
        lifecycle.finish(lifecycle.success(claimed))
        finished = time.monotonic()
        time.sleep(0.5)
    assert (reader.wrote, shown(job)) == (True, "running"), "it had read the row before the end"
    while shown(job) == "running":
        time.sleep(0.01)
    assert time.monotonic() - finished < 2.5  # 2, and what a busy machine adds


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("read_in_between", [False, True])
@pytest.mark.parametrize("change", ["retry", "cancel"])
def test_a_caller_who_changes_a_job_sees_the_change_at_once(change: str, read_in_between: bool) -> None:
    tenant = make_tenant()
    job, client = lifecycle.submit(tenant), client_of(tenant)
    if change == "retry":
        lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job)))
    before, after = ("failed", "queued") if change == "retry" else ("queued", "cancelled")
    assert client.get(path_of(job)).json()["status"] == before
    forget(job.id)
    with overtaken_reader(job) as reader:
        assert client.post(f"{path_of(job)}/{change}").status_code in (200, 202)
        if read_in_between:
            assert client.get(path_of(job)).json()["status"] == after
    assert reader.wrote is False
    assert client.get(path_of(job)).json()["status"] == after


@pytest.mark.django_db(transaction=True)
def test_what_an_operator_starts_anew_is_seen_within_two_seconds() -> None:
    job = lifecycle.submit(make_tenant())
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(job)))
    assert shown(job) == "failed"
    transitions.restart([job.id], reason="redriven")
    began = time.monotonic()
    while shown(job) == "failed":
        time.sleep(0.01)
    assert time.monotonic() - began < 2.5


@contextmanager
def own_redis(folder: Path) -> Iterator[tuple[str, int]]:
    """A server of this test's own: its URL and its pid."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binary()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0", process.pid
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@pytest.mark.django_db
def test_without_redis_the_answers_are_right_and_none_waits_for_it() -> None:
    answers, job = AnswerCache(NOWHERE), lifecycle.submit()
    for _ in range(3):
        assert status_in(read_job(job.tenant_id, job.id, answers=answers)) == "queued"
    lifecycle.claim_now(job)
    assert status_in(read_job(job.tenant_id, job.id, answers=answers)) == "running"


@pytest.mark.django_db
def test_a_redis_that_hangs_costs_one_reader_one_wait_and_is_used_again_when_it_answers(tmp_path: Path) -> None:
    job = lifecycle.submit()
    with own_redis(tmp_path) as (url, pid):
        answers = AnswerCache(url)
        read_job(job.tenant_id, job.id, answers=answers)
        os.kill(pid, signal.SIGSTOP)
        waits = []
        for _ in range(40):
            began = time.monotonic()
            assert answers.recall([str(job.id)]) == [None]
            waits.append(time.monotonic() - began)
        assert len([wait for wait in waits if wait >= PATIENCE_SECONDS / 2]) <= 2, "the first, and a busy machine"
        assert status_in(read_job(job.tenant_id, job.id, answers=answers)) == "queued"
        os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 20
        while answers.recall([str(job.id)]) == [None] and time.monotonic() < deadline:
            read_job(job.tenant_id, job.id, answers=answers)
            time.sleep(0.05)
        assert answers.recall([str(job.id)]) != [None]


@pytest.mark.django_db
def test_a_first_connection_to_a_redis_that_hangs_costs_no_more(tmp_path: Path) -> None:
    with own_redis(tmp_path) as (url, pid):
        os.kill(pid, signal.SIGSTOP)
        answers, began = AnswerCache(url), time.monotonic()
        for _ in range(40):
            answers.recall([str(uuid.uuid4())])
        assert time.monotonic() - began < 40 * PATIENCE_SECONDS / 4

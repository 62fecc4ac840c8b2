# mypy: ignore-errors
# ^ here, where the client is not; `test_client.py` checks a copy beside it, strictly
"""The walk of the README in a client that was generated from the OpenAPI document: BASE_URL API_KEY DEMO_SITE."""

from __future__ import annotations

import hashlib
import sys
import time
import urllib.request
from http import HTTPStatus

from made import AuthenticatedClient
from made.api.events import list_events
from made.api.jobs import (
    cancel_job,
    get_job,
    get_job_result,
    list_job_attempts,
    list_job_events,
    list_jobs,
    plan_job,
    submit_batch,
    submit_job,
)
from made.api.stats import get_stats
from made.models import BatchReceipt, Feed, Job, JobPage, JobSubmission, Plan, Problem, Receipt, ResultLink, Stats
from made.models.state_enum import StateEnum

WAIT_SECONDS = 60
FINAL = {StateEnum.SUCCEEDED, StateEnum.FAILED, StateEnum.CANCELLED}


def walk(client: AuthenticatedClient, site: str) -> None:
    """Each call of the README in its order, and those that it names beside."""
    wanted = JobSubmission(url=f"{site}/flaky/walk-1", tags=["walk"])
    planned = plan_job.sync(client=client, body=wanted)
    assert isinstance(planned, Plan), planned

    answer = submit_job.sync_detailed(client=client, body=wanted, idempotency_key="walk-1")
    assert answer.status_code == HTTPStatus.ACCEPTED
    receipt = answer.parsed
    assert isinstance(receipt, Receipt)
    assert answer.headers["Location"] == receipt.links.self_

    again = submit_job.sync_detailed(client=client, body=wanted, idempotency_key="walk-1")
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.parsed == receipt
    other = submit_job.sync(client=client, body=JobSubmission(url=f"{site}/fast"), idempotency_key="walk-1")
    assert isinstance(other, Problem)
    assert (other.status, other.code) == (422, "idempotency_key_reused")

    job = ended(client, receipt)
    assert job.status == StateEnum.SUCCEEDED, job
    attempts = list_job_attempts.sync(job.id, client=client)
    assert isinstance(attempts, list)
    assert [attempt.http_status for attempt in attempts] == [503, 503, 200]
    events = list_job_events.sync(job.id, client=client)
    assert isinstance(events, list)
    assert (events[0].from_, events[-1].to) == (None, StateEnum.SUCCEEDED)

    link = get_job_result.sync(job.id, client=client)
    assert isinstance(link, ResultLink)
    assert job.result is not None
    with urllib.request.urlopen(link.url) as stored:
        assert hashlib.sha256(stored.read()).hexdigest() == job.result.sha256

    page = list_jobs.sync(client=client, tag="walk", limit=50)
    assert isinstance(page, JobPage)
    assert ([one.id for one in page.items], page.next_cursor) == ([job.id], None)
    feed = list_events.sync(client=client)
    assert isinstance(feed, Feed)
    assert isinstance(get_stats.sync(client=client), Stats)

    batch = submit_batch.sync(client=client, body=[wanted, JobSubmission(url="ftp://example.org/")])
    assert isinstance(batch, BatchReceipt)
    assert (batch.accepted, batch.rejected) == (1, 1)
    refused = cancel_job.sync(job.id, client=client)
    assert isinstance(refused, Problem)
    assert refused.code == "already_final"
    wrong = submit_job.sync(client=client, body=JobSubmission(url="ftp://example.org/"))
    assert isinstance(wrong, Problem)
    assert isinstance(wrong.errors, list)
    assert wrong.errors[0].pointer == "/url"


def ended(client: AuthenticatedClient, receipt: Receipt) -> Job:
    """The job once it has ended."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        job = get_job.sync(receipt.id, client=client)
        assert isinstance(job, Job)
        if job.status in FINAL:
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.1)


if __name__ == "__main__":
    base_url, key, demo_site = sys.argv[1:]
    with AuthenticatedClient(base_url, key, raise_on_unexpected_status=True) as generated:
        walk(generated, demo_site)
    print("walked")

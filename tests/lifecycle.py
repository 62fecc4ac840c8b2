"""Moves jobs through their life as the worker does, with only what the test cares about spelled out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from jobs import transitions
from jobs.models import Job
from jobs.states import Outcome, State
from jobs.transitions import ClaimedJob, ClaimTicket, Ending
from tenants.models import Tenant


def submit(tenant: Tenant | None = None, **fields: Any) -> Job:
    """A queued job, just committed; the tenant is `acme` unless told."""
    values: dict[str, Any] = {
        "tenant": tenant or Tenant.objects.get_or_create(name="acme")[0],
        "url": "http://example.com/",
        "host": "example.com:80",
        "deadline_seconds": 30,
        "max_attempts": 5,
        "max_bytes": 1_000_000,
        "eligible_at": timezone.now() - timedelta(seconds=10),  # a test's own transaction stops the database's now()
    }
    job = Job.objects.create(**(values | fields))
    job.refresh_from_db()
    return job


def claim(job: Job, *, worker: str = "worker-a") -> ClaimedJob | None:
    """Claim as a worker does whose message was made from this row."""
    return transitions.claim([ClaimTicket(job.id, job.claim_no)], worker=worker, executors=["http"]).get(job.id)


def claim_now(job: Job, *, worker: str = "worker-a") -> ClaimedJob:
    """Claim the job as it stands in the database; fails the test when it is not to be had."""
    job.refresh_from_db()
    claimed = claim(job, worker=worker)
    assert claimed is not None
    return claimed


def success(claimed: ClaimedJob, **fields: Any) -> Ending:
    values: dict[str, Any] = {
        "http_status": 200,
        "result_key": f"results/{claimed.job_id}/{claimed.claim_no}",
        "result_bytes": 5,
        "result_sha256": "0" * 64,
        "result_final_url": claimed.url,
    }
    return Ending(
        claimed.job_id, claimed.claim_no, State.SUCCEEDED, Outcome.SUCCEEDED, "succeeded", **(values | fields)
    )


def failure(claimed: ClaimedJob, code: str = "http_404", *, again_after: float | None = None, **fields: Any) -> Ending:
    return Ending(
        claimed.job_id,
        claimed.claim_no,
        State.FAILED if again_after is None else State.QUEUED,
        Outcome.FAILED,
        code,
        delay_seconds=again_after or 0.0,
        error_code=code,
        error_detail="told so",
        **fields,
    )


def finish(ending: Ending) -> bool:
    """Whether the ending was accepted."""
    return bool(transitions.finish([ending]))

"""From what an attempt saw to where its job goes. Pure: the clock and the draw are passed in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from jobs.error_codes import is_temporary
from jobs.retries import Backoff, may_repeat, parse_retry_after, retry_delay
from jobs.states import Outcome, State
from jobs.transitions import ClaimedJob, Ending
from scraper.gates import NotNow
from scraper.outcomes import FetchOutcome


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The object that holds a response: its key, its size in bytes and its SHA-256 in hex."""

    key: str
    size: int
    sha256: str


def succeeded(job: ClaimedJob, outcome: FetchOutcome, stored: StoredResult) -> Ending:
    """The response is whole in storage."""
    return Ending(
        job_id=job.job_id,
        claim_no=job.claim_no,
        state=State.SUCCEEDED,
        outcome=Outcome.SUCCEEDED,
        reason="succeeded",
        http_status=outcome.http_status,
        result_key=stored.key,
        result_bytes=stored.size,
        result_sha256=stored.sha256,
        result_content_type=outcome.content_type[:255],
        result_final_url=outcome.final_url,
        **_evidence(outcome),
    )


def failed(job: ClaimedJob, outcome: FetchOutcome, *, now: datetime, draw: float, backoff: Backoff) -> Ending:
    """The attempt failed: the job waits for another, or has failed for good."""
    code, detail = outcome.error_code or "internal_fetch_error", outcome.error_detail
    retry_after = parse_retry_after(outcome.retry_after, now=now)
    delay = retry_delay(
        code,
        attempt=job.attempts,
        max_attempts=job.max_attempts,
        retry_after=retry_after,
        draw=draw,
        backoff=backoff,
    )
    if outcome.robots_unread and job.attempts >= job.max_attempts:
        code = "blocked_by_robots"  # RFC 9309 2.3.1.4: rules that cannot be read forbid everything
    repeatable = may_repeat(job.method, request_sent=outcome.request_sent, retry_unsafe=job.retry_unsafe)
    if is_temporary(code) and job.attempts < job.max_attempts and not repeatable:
        detail = f"{code}; a {job.method} that may have reached the target is not repeated without retry_unsafe."
        code, delay = "unsafe_to_retry", None
    return Ending(
        job_id=job.job_id,
        claim_no=job.claim_no,
        state=State.FAILED if delay is None else State.QUEUED,
        outcome=Outcome.FAILED,
        reason=code,
        delay_seconds=delay or 0.0,
        error_code=code,
        error_detail=detail,
        internal_error=outcome.error_code == "internal_fetch_error",
        http_status=outcome.http_status,
        **_evidence(outcome),
    )


def cancelled(job: ClaimedJob) -> Ending:
    """The caller asked, the attempt was stopped midway."""
    return Ending(job.job_id, job.claim_no, State.CANCELLED, Outcome.CANCELLED, "cancelled")


def postponed(job: ClaimedJob, outcome: FetchOutcome, refusal: NotNow) -> Ending:
    """A host on the job's way may not be called now: the job goes back until then, without using up an attempt; one
    that must not be repeated fails instead."""
    if may_repeat(job.method, request_sent=outcome.request_sent, retry_unsafe=job.retry_unsafe):
        return Ending(
            job_id=job.job_id,
            claim_no=job.claim_no,
            state=State.QUEUED,
            outcome=Outcome.RELEASED,
            reason=refusal.reason,
            delay_seconds=refusal.seconds,
            uses_attempt=False,
            http_status=outcome.http_status,
            **_evidence(outcome),
        )
    return Ending(
        job_id=job.job_id,
        claim_no=job.claim_no,
        state=State.FAILED,
        outcome=Outcome.FAILED,
        reason="unsafe_to_retry",
        error_code="unsafe_to_retry",
        error_detail=f"A redirect led to a host that may not be called now; a {job.method} that may have reached the "
        "target is not repeated without retry_unsafe.",
        http_status=outcome.http_status,
        **_evidence(outcome),
    )


def released(job: ClaimedJob, *, reason: str, may_have_been_sent: bool) -> Ending:
    """The worker gives the job back without using up an attempt; one that must not be repeated fails instead."""
    if may_repeat(job.method, request_sent=may_have_been_sent, retry_unsafe=job.retry_unsafe):
        return Ending(job.job_id, job.claim_no, State.QUEUED, Outcome.RELEASED, reason, uses_attempt=False)
    return Ending(
        job.job_id,
        job.claim_no,
        State.FAILED,
        Outcome.FAILED,
        "unsafe_to_retry",
        error_code="unsafe_to_retry",
        error_detail=f"The worker stopped during a {job.method} that may have reached the target; it is not repeated.",
    )


def _evidence(outcome: FetchOutcome) -> dict[str, Any]:
    return {
        "timings": outcome.timings,
        "redirects": outcome.redirects,
        "response_headers": outcome.headers,
        "evidence": outcome.evidence,
        "body_snippet": outcome.body_snippet,
    }


def without_evidence(ending: Ending) -> Ending:
    """The same end with nothing in it that came from the target, for a record that the database would not take."""
    return replace(
        ending,
        result_content_type="",
        result_final_url="",
        error_detail="The target's answer could not be recorded." if ending.error_code else "",
        timings={},
        redirects=[],
        response_headers=[],
        evidence={},
        body_snippet="",
    )

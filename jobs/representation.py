"""How a job looks to callers (contract section 3). Links are absolute paths, right behind any proxy."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from core.encoding import rfc3339
from jobs.models import Attempt, Job, JobEvent
from jobs.services import Receipt
from jobs.states import Priority, State
from jobs.timestamps import rfc3339_or_none
from jobs.waiting import Facts, explain

JOBS_PATH: Final = "/api/v1/jobs"
TIMINGS: Final = ("dns", "connect", "tls", "first_byte", "total")
EVIDENCE: Final = {
    "connection": ("remote_address", "http_version", "tls_version"),
    "charset": ("bom", "header", "meta"),
}

Document = dict[str, Any]


def job_path(job_id: uuid.UUID) -> str:
    return f"{JOBS_PATH}/{job_id}"


def receipt_document(receipt: Receipt) -> Document:
    """The answer to a submitted job. A replay gives the same document, whatever the job has become meanwhile."""
    path = job_path(receipt.job_id)
    return {
        "id": str(receipt.job_id),
        "status": State.QUEUED.value,
        "created_at": rfc3339(receipt.created_at),
        "links": {"self": path, "result": f"{path}/result", "attempts": f"{path}/attempts", "cancel": f"{path}/cancel"},
    }


def job_document(job: Job, facts: Facts, *, now: datetime) -> Document:
    """The whole job; `facts` and `now`, by the database's clock, say why a queued one is not running."""
    path = job_path(job.id)
    waiting = explain(job, facts, now=now)
    return {
        "id": str(job.id),
        "status": job.state,
        "priority": Priority(job.priority).label,
        "url": job.url,
        "method": job.method,
        "host": job.host,
        "tags": job.tags,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "last_error": last_error_document(job),
        "waiting_on": None if waiting.on is None else waiting.on.value,
        "eligible_at": rfc3339_or_none(waiting.eligible_at),
        "created_at": rfc3339(job.created_at),
        "started_at": rfc3339_or_none(job.started_at),
        "finished_at": rfc3339_or_none(job.finished_at),
        "result": _result(job),
        "links": {
            "self": path,
            "result": f"{path}/result",
            "attempts": f"{path}/attempts",
            "events": f"{path}/events",
            "cancel": f"{path}/cancel",
        },
    }


def last_error_document(job: Job) -> Document | None:
    """The last error that the job met; None for a job that met none."""
    if not job.error_code:
        return None
    return {
        "code": job.error_code,
        "detail": job.error_detail,
        "http_status": job.error_http_status,
        "at": rfc3339_or_none(job.error_at),
    }


def _result(job: Job) -> Document | None:
    if job.state != State.SUCCEEDED:
        return None
    return {
        "bytes": job.result_bytes,
        "content_type": job.result_content_type or None,
        "http_status": job.result_http_status,
        "sha256": job.result_sha256,
        "final_url": job.result_final_url,
        "expires_at": rfc3339_or_none(job.result_expires_at),
    }


def attempt_documents(job: Job, attempts: Iterable[Attempt]) -> list[Document]:
    """Every attempt, oldest first; a running one has no row of its own yet and is told from the job's."""
    ended = list(attempts)
    documents = [_attempt(attempt) for attempt in ended]
    # The job was read first: its attempt may have ended, and left a row, before the attempts were read.
    if job.state == State.RUNNING and all(attempt.claim_no != job.claim_no for attempt in ended):
        documents.append(_running_attempt(job))
    return documents


def _attempt(attempt: Attempt) -> Document:
    error = {"code": attempt.error_code, "detail": attempt.error_detail} if attempt.error_code else None
    return {
        "number": attempt.number,
        "outcome": attempt.outcome,
        "error": error,
        "http_status": attempt.http_status,
        "worker": attempt.worker,
        "started_at": rfc3339(attempt.started_at),
        "finished_at": rfc3339(attempt.finished_at),
        "timings": {name: _microseconds(attempt.timings.get(name)) for name in TIMINGS},
        "redirects": attempt.redirects,
        "response_headers": attempt.response_headers,
        **_evidence(attempt.evidence),
        "body_snippet": attempt.body_snippet,
    }


def _evidence(found: Mapping[str, Mapping[str, str | None]]) -> Document:
    """Every name, with null for what was not seen."""
    return {part: {name: found.get(part, {}).get(name) for name in names} for part, names in EVIDENCE.items()}


def _microseconds(seconds: float | None) -> float | None:
    """Rounded to what a clock can tell."""
    return None if seconds is None else round(seconds, 6)


def _running_attempt(job: Job) -> Document:
    return {
        "number": job.attempts,
        "outcome": "running",
        "error": None,
        "http_status": None,
        "worker": job.worker,
        "started_at": rfc3339_or_none(job.claimed_at),
        "finished_at": None,
        "timings": dict.fromkeys(TIMINGS),
        "redirects": [],
        "response_headers": [],
        **_evidence({}),
        "body_snippet": "",
    }


def event_document(event: JobEvent) -> Document:
    return {
        "seq": event.seq,
        "at": rfc3339(event.at),
        "from": event.from_state,
        "to": event.to_state,
        "reason": event.reason,
        "attempt": event.attempt,
    }

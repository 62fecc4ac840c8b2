"""From the end of a job to the deliveries that tell of it, once for each end and place, however often heard of."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.conf import settings

from core.encoding import to_json
from jobs.models import Job
from jobs.representation import job_path, last_error_document
from jobs.states import FINAL
from jobs.targets import InvalidTarget, parse_target
from jobs.timestamps import rfc3339_or_none
from webhooks.events import EventType
from webhooks.models import Delivery, Endpoint
from webhooks.secret_keeping import ensure_callback_secret

_COLUMNS: Final = (
    *("id", "tenant_id", "state", "finished_at", "tags", "attempts", "callback_url"),
    *("error_code", "error_detail", "error_http_status", "error_at"),
)


def announce(job_ids: Iterable[uuid.UUID]) -> int:
    """Make the deliveries that the ends of these jobs ask for; returns how many places are told, now or already.

    A job that is not final any more was retried: whoever did that knows of the end, and the next one is told.
    """
    jobs = list(Job.objects.filter(pk__in=list(job_ids), state__in=sorted(FINAL)).only(*_COLUMNS))
    endpoints = _endpoints_of({job.tenant_id for job in jobs})
    deliveries = [delivery for job in jobs for delivery in _deliveries(job, endpoints.get(job.tenant_id, []))]
    if deliveries:
        for tenant_id in {one.tenant_id for one in deliveries if one.endpoint_id is None}:
            ensure_callback_secret(tenant_id)
        Delivery.objects.bulk_create(deliveries, ignore_conflicts=True)
    return len(deliveries)


def _endpoints_of(tenant_ids: set[uuid.UUID]) -> dict[uuid.UUID, list[Endpoint]]:
    found: dict[uuid.UUID, list[Endpoint]] = {}
    if tenant_ids:
        live = Endpoint.objects.filter(tenant_id__in=tenant_ids, deleted_at=None, disabled_at=None)
        for endpoint in live.only("id", "tenant_id", "created_at").order_by("id"):
            found.setdefault(endpoint.tenant_id, []).append(endpoint)
    return found


def _deliveries(job: Job, endpoints: Iterable[Endpoint]) -> Iterator[Delivery]:
    """An endpoint hears of what ended after it was registered."""
    told = [endpoint for endpoint in endpoints if job.finished_at and endpoint.created_at <= job.finished_at]
    if not told and not job.callback_url:
        return
    values: dict[str, Any] = {
        "tenant_id": job.tenant_id,
        "event_type": EventType.JOB_FINISHED,
        "job_id": job.id,
        "ended_at": job.finished_at,
        "body": finished_body(job),
    }
    for endpoint in told:
        yield Delivery(endpoint=endpoint, destination=endpoint_destination(endpoint.id), **values)
    if job.callback_url:
        yield Delivery(
            url=job.callback_url, destination=callback_destination(job.tenant_id, job.callback_url), **values
        )


def endpoint_destination(endpoint_id: uuid.UUID) -> str:
    return f"endpoint {endpoint_id}"


def callback_destination(tenant_id: uuid.UUID, url: str) -> str:
    """A URL was checked when its job was submitted; one that is none any more fails when it is tried, not here."""
    try:
        host = parse_target(url).host
    except InvalidTarget:
        host = ""
    return f"callback {tenant_id} {host}"


def finished_body(job: Job) -> bytes:
    """The body that tells of the job's end (contract section 6). Links are absolute where PUBLIC_URL says how."""
    finished_at = rfc3339_or_none(job.finished_at)
    path = f"{settings.PUBLIC_URL}{job_path(job.id)}"
    return body(
        EventType.JOB_FINISHED,
        finished_at,
        {
            "id": str(job.id),
            "status": job.state,
            "finished_at": finished_at,
            "tags": job.tags,
            "attempts": job.attempts,
            "last_error": last_error_document(job),
            "links": {"self": path, "result": f"{path}/result", "attempts": f"{path}/attempts"},
        },
    )


def body(event_type: EventType, timestamp: str | None, data: dict[str, Any]) -> bytes:
    """The three fields of Standard Webhooks, in JSON; `timestamp` is the event's time."""
    return to_json({"type": event_type.value, "timestamp": timestamp, "data": data})

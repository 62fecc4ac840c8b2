"""The command side: submit, cancel and retry. (`query.views` adds what is read at the same addresses, and
lets readers know of a cancel and a retry.)"""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import Final

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import NotFound
from core.views import ServiceView
from jobs import idempotency, services, surroundings, transitions
from jobs.examples import RECEIPT, example
from jobs.idempotency import IdempotencyKeyInFlight, IdempotencyKeyReused, InvalidIdempotencyKey, KeyUse
from jobs.representation import job_document, job_path, receipt_document
from jobs.schema import COME_AGAIN, IDEMPOTENCY_KEY, LIMITED, REPLAYED, WITH_BODY, problems
from jobs.serializers import JobSerializer, JobSubmissionSerializer, ReceiptSerializer
from jobs.submission import read_submission
from jobs.transitions import AlreadyFinal, NotRetryable
from jobs.waiting import NOTHING
from tenants.authentication import tenant_of

SUBMIT_CALL: Final = "POST /jobs"

_EXAMPLES = [
    OpenApiExample("The least", value={"url": "https://example.com/"}, request_only=True),
    OpenApiExample(
        "A form",
        value={
            "url": "https://example.com/search",
            "method": "POST",
            "headers": {"Content-Type": "application/x-www-form-urlencoded"},
            "body": "q=snow",
            "priority": "low",
            "tags": ["weather"],
            "run_at": "2027-01-31T08:00:00Z",
            "deadline_seconds": 60,
        },
        request_only=True,
    ),
    *example("Queued", RECEIPT),
]
_RESPONSE_HEADERS = [
    OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="The job's path."),
    REPLAYED,
    COME_AGAIN,
]


class SubmitJobView(ServiceView):
    """Submit a job to be fetched."""

    @extend_schema(
        operation_id="submit_job",
        summary="Submit a job",
        description="The answer comes once the job is stored; it is then fetched, and tried again as told.",
        tags=["jobs"],
        parameters=[IDEMPOTENCY_KEY, *_RESPONSE_HEADERS],
        request=JobSubmissionSerializer,
        examples=_EXAMPLES,
        responses={
            202: OpenApiResponse(ReceiptSerializer, description="Stored; it will be fetched."),
            **problems(InvalidIdempotencyKey, IdempotencyKeyInFlight, *WITH_BODY, IdempotencyKeyReused, *LIMITED),
        },
    )
    def post(self, request: Request) -> Response:
        document = request.data
        use = _key_use(request, document)
        submission = read_submission(document, now=timezone.now())
        receipt = services.submit(tenant_of(request), submission, use)
        headers = {"Location": job_path(receipt.job_id)}
        if receipt.replayed:
            headers["Idempotent-Replayed"] = "true"
        return Response(receipt_document(receipt), status=HTTPStatus.ACCEPTED, headers=headers)


def _key_use(request: Request, document: object) -> KeyUse | None:
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    key = idempotency.read_key(header)
    return KeyUse(tenant_of(request).id, SUBMIT_CALL, key, idempotency.fingerprint(document))


class CancelJobView(ServiceView):
    """Cancel a job."""

    name = "Cancel"

    @extend_schema(
        operation_id="cancel_job",
        summary="Cancel a job",
        description="A queued job is cancelled at once; the worker of a running one is asked to stop midway, and the "
        "job shows as running until it has. Asking again changes nothing.",
        tags=["jobs"],
        request=None,
        responses={200: JobSerializer, **problems(NotFound, AlreadyFinal)},
    )
    def post(self, request: Request, job_id: uuid.UUID) -> Response:
        job = transitions.request_cancel(job_id, tenant_of(request).id)
        return Response(job_document(job, NOTHING, now=timezone.now()))


class RetryJobView(ServiceView):
    """Retry a job that ended without a result."""

    name = "Retry"

    @extend_schema(
        operation_id="retry_job",
        summary="Retry a job",
        description="A failed or cancelled job is queued again with a fresh set of attempts; what it met before stays "
        "in its attempts and events. It runs as soon as it can, also where its `run_at` is still to come.",
        tags=["jobs"],
        request=None,
        responses={202: JobSerializer, **problems(NotFound, NotRetryable, *LIMITED)},
    )
    def post(self, request: Request, job_id: uuid.UUID) -> Response:
        job = services.retry(tenant_of(request), job_id)
        document = job_document(job, surroundings.look([job]).of(job), now=timezone.now())
        return Response(document, status=HTTPStatus.ACCEPTED)

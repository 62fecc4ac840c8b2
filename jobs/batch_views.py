"""Submitting many jobs in one call."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, ClassVar, Final

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from core.json_rows import RowsParser
from core.views import ServiceView
from jobs import batches, idempotency
from jobs.batch_serializers import BatchReceiptSerializer
from jobs.batches import BatchReceipt, EmptyBatch, TooManyJobs
from jobs.idempotency import IdempotencyKeyInFlight, IdempotencyKeyReused, InvalidIdempotencyKey, KeyUse
from jobs.representation import Document
from jobs.schema import COME_AGAIN, IDEMPOTENCY_KEY, LIMITED, REPLAYED, WITH_BODY, problems
from jobs.serializers import JobSubmissionSerializer
from jobs.states import State
from tenants.authentication import tenant_of

CALL: Final = "POST /jobs/batch"

# drf-spectacular makes a list of it where the body is one.
_EXAMPLES: Final = [OpenApiExample("A job", value={"url": "https://example.com/", "tags": ["a"]}, request_only=True)]
_RECEIPT_EXAMPLE: Final = OpenApiExample(
    "One of two",
    value={
        "accepted": 1,
        "rejected": 1,
        "items": [
            {"index": 0, "id": "0198c6a2-b3c4-7d1e-9f00-112233445566", "status": "queued"},
            {
                "index": 1,
                "error": {
                    "code": "validation_failed",
                    "detail": "One or more values are not valid.",
                    "errors": [{"pointer": "/url", "detail": "Is required."}],
                },
            },
        ],
    },
    response_only=True,
    status_codes=["202"],
)


class BatchParser(RowsParser):
    """A JSON array of jobs."""

    body_bytes: ClassVar[int] = settings.MAX_BATCH_BYTES
    row_bytes: ClassVar[int] = settings.MAX_REQUEST_BYTES


class BatchLinesParser(BatchParser):
    """A job on each line."""

    media_type = "application/x-ndjson"
    lines: ClassVar[bool] = True


class BatchJsonlParser(BatchLinesParser):
    """The same by its other name."""

    media_type = "application/jsonl"


class SubmitBatchView(ServiceView):
    """Submit up to 10,000 jobs at once."""

    name = "Batch"
    parser_classes = (BatchParser, BatchLinesParser, BatchJsonlParser)

    @extend_schema(
        operation_id="submit_batch",
        summary="Submit many jobs",
        description=f"A JSON array, or one job a line (`application/x-ndjson`, also called `application/jsonl`; blank "
        f"lines do not count). Up to {batches.MAX_JOBS:,} jobs of up to 1 MiB each, 32 MiB in all.\n\n"
        "Each row is judged by itself: those that are right are stored, all at once, before the answer comes; each "
        "other one has its `error`, whose pointers begin at the row. `index` counts the rows from 0. A line that is "
        "no JSON is refused alone; a broken array is 400 as a whole.\n\n"
        "The tenant's `submit_rate` lets a batch pass as a whole once nothing is owed, and the jobs beyond a second's "
        "worth are then owed. Where its queue has room for only some, the others are refused by `too_many_queued`, "
        "and the call is a 429 where there is room for none.\n\n"
        "One Idempotency-Key covers the batch, and gets the same receipt again, refused rows included. A batch of "
        "which nothing was stored is not remembered.",
        tags=["jobs"],
        parameters=[IDEMPOTENCY_KEY, REPLAYED, COME_AGAIN],
        request={
            "application/json": JobSubmissionSerializer(many=True),
            "application/x-ndjson": JobSubmissionSerializer,
            "application/jsonl": JobSubmissionSerializer,
        },
        examples=[*_EXAMPLES, _RECEIPT_EXAMPLE],
        responses={
            202: OpenApiResponse(BatchReceiptSerializer, description="The rows that are right are stored."),
            **problems(
                InvalidIdempotencyKey,
                IdempotencyKeyInFlight,
                *WITH_BODY,
                EmptyBatch,
                TooManyJobs,
                IdempotencyKeyReused,
                *LIMITED,
            ),
        },
    )
    def post(self, request: Request) -> Response:
        header = request.headers.get("Idempotency-Key")
        key = None if header is None else idempotency.read_key(header)
        rows: Any = request.data
        batch = batches.read_batch(rows, now=timezone.now(), with_key=key is not None)
        tenant = tenant_of(request)
        use = None if key is None else KeyUse(tenant.id, CALL, key, batch.fingerprint)
        receipt = batches.submit(tenant, batch, use)
        headers = {"Idempotent-Replayed": "true"} if receipt.replayed else {}
        return Response(_document(receipt), status=HTTPStatus.ACCEPTED, headers=headers)


def _document(receipt: BatchReceipt) -> Document:
    return {
        "accepted": len(receipt.job_ids),
        "rejected": len(receipt.rejected),
        "items": [_item(index, outcome) for index, outcome in receipt.outcomes()],
    }


def _item(index: int, outcome: Any) -> Document:
    if isinstance(outcome, dict):
        return {"index": index, "error": outcome}
    return {"index": index, "id": str(outcome), "status": State.QUEUED.value}

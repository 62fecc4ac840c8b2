"""`GET /events`: the tenant's finished jobs in the order in which the publisher numbered their ends.

Numbers are committed in their order (`jobs.publisher`), so what a reader has not seen yet lies behind the last number
it was given, whoever wrote what in which order.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.encoding import rfc3339
from core.views import ServiceView
from jobs import parameters, surroundings
from jobs.models import FinishEvent
from jobs.representation import Document, job_document
from jobs.schema import problems
from jobs.serializers import JobSerializer
from query import selectors
from query.selectors import SeenJob
from tenants.authentication import tenant_of

JOB_FINISHED: Final = "job.finished"
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_LAST: Final = 2**63 - 1


def _after(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > _LAST:
        raise ValueError("Must be a whole number: 0, a `seq` or a `next_after`.")
    return int(text)


_PARAMETERS: Final[dict[str, parameters.Reader]] = {
    "after": _after,
    "limit": parameters.PAGE["limit"],
    "type": parameters.one_of({JOB_FINISHED: JOB_FINISHED}),
}


class FinishEventSerializer(serializers.Serializer[Any]):
    seq = serializers.IntegerField(help_text="Grows with each event of the tenant; numbers are left out.")
    type = serializers.ChoiceField(choices=[JOB_FINISHED])
    job = JobSerializer(help_text="As the job is now: one that was retried may be queued again.")
    at = serializers.DateTimeField(help_text="When the job ended.")


class FeedSerializer(serializers.Serializer[Any]):
    items = FinishEventSerializer(many=True)
    next_after = serializers.IntegerField(
        help_text="Send it as `after` with the next call, also when nothing came: it is good for ever."
    )


class FeedView(ServiceView):
    """The tenant's finished jobs, in order."""

    name = "Finished jobs"

    @extend_schema(
        operation_id="list_events",
        summary="Follow finished jobs",
        description="One call tells of up to a thousand jobs that have succeeded, failed or been cancelled, oldest end "
        "first. Go on with `after=next_after` and no end is missed and none is told twice, in whatever order "
        "jobs are finished at the same time; where no `items` come, ask again after a while. A job that was "
        "retried comes again with its next end.",
        tags=["events"],
        parameters=[
            OpenApiParameter(
                "after",
                {"type": "integer", "format": "int64", "minimum": 0, "maximum": _LAST, "default": 0},
                description="Only what is behind this `seq`.",
            ),
            OpenApiParameter("limit", parameters.LIMIT),
            OpenApiParameter("type", str, enum=[JOB_FINISHED], description="There is this one type."),
        ],
        examples=[
            OpenApiExample("Nothing new", value={"items": [], "next_after": 4711}, response_only=True),
        ],
        responses={200: FeedSerializer, **problems(parameters.InvalidParameter)},
    )
    def get(self, request: Request) -> Response:
        values = parameters.read_parameters(request.query_params, _PARAMETERS)
        page = read_feed(tenant_of(request).id, values.get("after", 0), values.get("limit", parameters.DEFAULT_LIMIT))
        return Response({"items": _documents(page), "next_after": page.next_after})


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Some ends with their jobs, and the number to go on behind."""

    ends: list[tuple[FinishEvent, SeenJob]]
    next_after: int


def read_feed(tenant_id: uuid.UUID, after: int, limit: int) -> FeedPage:
    """Up to `limit` ends of the tenant's jobs behind the number `after`; two queries."""
    events = list(FinishEvent.objects.filter(tenant_id=tenant_id, seq__gt=after).order_by("seq")[:limit])
    jobs = selectors.find_jobs(tenant_id, {event.job_id for event in events})
    ends = [(event, jobs[event.job_id]) for event in events if event.job_id in jobs]  # jobs end with their retention
    return FeedPage(ends, events[-1].seq if events else after)


def _documents(page: FeedPage) -> list[Document]:
    around = surroundings.look(seen.job for _, seen in page.ends)
    return [
        {
            "seq": event.seq,
            "type": JOB_FINISHED,
            "job": job_document(seen.job, around.of(seen.job), now=seen.now),
            "at": rfc3339(event.at),
        }
        for event, seen in page.ends
    ]

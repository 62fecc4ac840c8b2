"""The read side: jobs, their attempts, events and results."""

from __future__ import annotations

import json
import uuid
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.encoding import rfc3339
from core.errors import NotFound
from core.pagination import Cursors, InvalidCursor
from core.views import ServiceView
from jobs import parameters, surroundings
from jobs.representation import attempt_documents, event_document, job_document
from jobs.schema import COME_AGAIN, problems
from jobs.serializers import (
    PRIORITIES,
    STATUSES,
    AttemptSerializer,
    JobEventSerializer,
    JobPageSerializer,
    JobSerializer,
    ResultLinkSerializer,
)
from jobs.states import Priority, State
from jobs.targets import hosts_named
from jobs.views import CancelJobView, RetryJobView, SubmitJobView
from query import selectors
from query.reading import forget, read_job
from query.results import JobCancelled, JobFailed, ResultExpired, ResultNotReady, result_link
from tenants.authentication import tenant_of

_FILTERS: Final[dict[str, parameters.Reader]] = {
    "status": parameters.one_of({state.value: state for state in State}),
    "host": hosts_named,
    "tag": parameters.short_text,
    "priority": parameters.one_of({priority.label: priority for priority in Priority}),
    "created_after": parameters.moment,
    "created_before": parameters.moment,
}
_TIME: Final = {"type": "string", "format": "date-time"}


class JobCollectionView(SubmitJobView):
    """Submit a job, and list the tenant's own."""

    name = "Jobs"

    @extend_schema(
        operation_id="list_jobs",
        summary="List jobs",
        description="Newest first. Follow `next_cursor` with the same filters until it is null; no job is skipped or "
        "shown twice while new ones arrive. A page looks at no more than 20,000 jobs: with filters that let few of "
        "them pass it may hold fewer than `limit`, or none, and others follow all the same.",
        tags=["jobs"],
        parameters=[
            OpenApiParameter("status", str, enum=STATUSES),
            OpenApiParameter(
                "host",
                {"type": "string", "minLength": 1},
                description="As in the job; without a port, both 80 and 443.",
            ),
            OpenApiParameter("tag", {"type": "string", "minLength": 1, "maxLength": 300}),
            OpenApiParameter("priority", str, enum=PRIORITIES),
            OpenApiParameter("created_after", _TIME, description="Later than this."),
            OpenApiParameter("created_before", _TIME, description="Earlier than this."),
            OpenApiParameter("limit", parameters.LIMIT),
            OpenApiParameter("cursor", parameters.CURSOR, description="`next_cursor` of the page before."),
        ],
        responses={200: JobPageSerializer, **problems(parameters.InvalidParameter, InvalidCursor)},
    )
    def get(self, request: Request) -> Response:
        values = parameters.read_parameters(request.query_params, _FILTERS | parameters.PAGE)
        filters = {name: value for name, value in values.items() if name in _FILTERS}
        tenant_id = tenant_of(request).id
        return Response(
            _page(tenant_id, filters, cursor=values.get("cursor"), limit=values.get("limit", parameters.DEFAULT_LIMIT))
        )


def _page(tenant_id: uuid.UUID, filters: dict[str, Any], *, cursor: str | None, limit: int) -> dict[str, Any]:
    cursors = Cursors(tenant_id, filters)
    after = cursors.read(cursor) if cursor is not None else None
    page = selectors.list_jobs(tenant_id, filters, after=after, limit=limit)
    around = surroundings.look(one.job for one in page.jobs)
    return {
        "items": [job_document(one.job, around.of(one.job), now=one.now) for one in page.jobs],
        "next_cursor": None if page.next_after is None else cursors.write(page.next_after),
    }


class JobView(ServiceView):
    """One job: where it stands and what became of it."""

    name = "Job"

    @extend_schema(
        operation_id="get_job",
        summary="Read a job",
        description="May show how the job stood up to two seconds ago. Send the `ETag` of the answer before as "
        "`If-None-Match`, and a job that looks the same is answered with 304 and no body.",
        tags=["jobs"],
        parameters=[
            OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER, description="ETags of answers at hand."),
            OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[200, 304], description="Weak."),
        ],
        responses={
            200: JobSerializer,
            304: OpenApiResponse(description="The caller has this answer already."),
            **problems(NotFound),
        },
    )
    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponse:
        answer = read_job(tenant_of(request).id, job_id)
        if request.accepted_renderer.format != "json":
            return Response(json.loads(answer.body))
        status = answer.status_for(request.headers.get("If-None-Match"))
        if status == HTTPStatus.NOT_MODIFIED:
            return HttpResponseNotModified(headers=answer.headers())
        return HttpResponse(answer.body, content_type="application/json", headers=answer.headers())


class _ChangesJob(APIView):
    """Once the change is committed, whoever reads the job is told of it: of a job that was retried, nobody takes the
    earlier end for the new one."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        answer = super().dispatch(request, *args, **kwargs)
        if request.method == "POST" and answer.status_code < 300:
            forget(kwargs["job_id"])
        return answer


class JobCancelView(_ChangesJob, CancelJobView):
    """Cancel a job."""

    name = "Cancel"


class JobRetryView(_ChangesJob, RetryJobView):
    """Retry a job that ended without a result."""

    name = "Retry"


class JobAttemptsView(ServiceView):
    """Each attempt and what the target answered."""

    name = "Attempts"

    @extend_schema(
        operation_id="list_job_attempts",
        summary="Read a job's attempts",
        description="Oldest first; an attempt that is running now is the last one, with the outcome `running`.",
        tags=["jobs"],
        responses={200: AttemptSerializer(many=True), **problems(NotFound)},
    )
    def get(self, request: Request, job_id: uuid.UUID) -> Response:
        job = selectors.find_job(tenant_of(request).id, job_id).job
        return Response(attempt_documents(job, selectors.attempts_of(job)))


class JobEventsView(ServiceView):
    """Each change of the job's state."""

    name = "Events"

    @extend_schema(
        operation_id="list_job_events",
        summary="Read a job's changes of state",
        description="Oldest first; events are never changed.",
        tags=["jobs"],
        responses={200: JobEventSerializer(many=True), **problems(NotFound)},
    )
    def get(self, request: Request, job_id: uuid.UUID) -> Response:
        job = selectors.find_job(tenant_of(request).id, job_id).job
        return Response([event_document(event) for event in selectors.events_of(job)])


class JobResultView(ServiceView):
    """A download link for the stored response."""

    name = "Result"

    @extend_schema(
        operation_id="get_job_result",
        summary="Get a download link for a job's result",
        description="A fresh link each time; `expires_at` is the link's end; the result's own is in the job.",
        tags=["jobs"],
        parameters=[COME_AGAIN],
        responses={
            200: ResultLinkSerializer,
            **problems(NotFound, ResultNotReady, JobFailed, JobCancelled, ResultExpired),
        },
    )
    def get(self, request: Request, job_id: uuid.UUID) -> Response:
        link = result_link(selectors.find_job(tenant_of(request).id, job_id))
        # The link opens the result to whoever holds it: no cache may keep it.
        headers = {"Cache-Control": "no-store"}
        return Response({"url": link.url, "expires_at": rfc3339(link.expires_at)}, headers=headers)

"""A dry run of a job."""

from __future__ import annotations

from typing import Any, Final

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from core.views import ServiceView
from jobs.models import Method
from jobs.plans import COUNT_LIMIT, Plan, plan, queue_room
from jobs.representation import Document
from jobs.schema import WITH_BODY, problems
from jobs.serializers import PRIORITIES, WAITING_ON, JobSubmissionSerializer
from jobs.submission import read_submission
from jobs.timestamps import rfc3339_or_none
from tenants import throttle
from tenants.authentication import scopes_of, tenant_of
from tenants.models import Scope, Tenant

_EXAMPLE: Final = {
    "url": "https://example.com/search?q=snow",
    "method": "GET",
    "priority": "normal",
    "host": {
        "name": "example.com:443",
        "rate": 5.0,
        "burst": 5,
        "concurrency": 4,
        "pace": 1.0,
        "paused": False,
        "blocked_until": None,
    },
    "quota": {"submit_rate": {"limit": 50, "left": 50}, "max_queued": {"limit": 100000, "left": 99990}},
    "waiting_on": "host_rate",
    "predicted_start": "2027-01-31T08:00:02.4Z",
    "ahead": {"same_host": 16, "queued": 16},
}


class PlannedHostSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="The unit of politeness: lower-cased, IDNA, with port.")
    rate = serializers.FloatField(help_text="Most requests a second, of all tenants together.")
    burst = serializers.IntegerField(help_text="Requests at once after a rest.")
    concurrency = serializers.IntegerField(help_text="Most connections at once.")
    pace = serializers.FloatField(help_text="Part of the rate that is used now; below 1 while the host is overloaded.")
    paused = serializers.BooleanField()
    blocked_until = serializers.DateTimeField(allow_null=True, help_text="The host asked not to be called before.")


class PlannedLimitSerializer(serializers.Serializer[Any]):
    """Null: no limit, or, in `left`, that more is used than is counted."""

    limit = serializers.IntegerField(allow_null=True)
    left = serializers.IntegerField(allow_null=True)


class PlannedQuotaSerializer(serializers.Serializer[Any]):
    submit_rate = PlannedLimitSerializer(help_text="Jobs a second; `left` as this web process last knew it.")
    max_queued = PlannedLimitSerializer(help_text="Jobs queued at once.")


class AheadSerializer(serializers.Serializer[Any]):
    same_host = serializers.IntegerField(help_text="The tenant's due jobs of this priority for this host.")
    queued = serializers.IntegerField(help_text="All jobs that the tenant has queued.")


class PlanSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(help_text="Canonical, `params` included: as it would be stored and fetched.")
    method = serializers.ChoiceField(choices=Method.values)
    priority = serializers.ChoiceField(choices=PRIORITIES)
    host = PlannedHostSerializer()
    quota = PlannedQuotaSerializer()
    waiting_on = serializers.ChoiceField(
        choices=WAITING_ON, allow_null=True, help_text="What the job would wait for first, as a queued job tells it."
    )
    predicted_start = serializers.DateTimeField(
        allow_null=True, help_text="Null where nobody can know: a pause, or no worker is alive."
    )
    ahead = AheadSerializer(help_text=f"What the estimate counts with; each is counted up to {COUNT_LIMIT:,}.")


class PlanView(ServiceView):
    """What would become of a job."""

    name = "Plan"

    @property
    def required_scopes(self) -> set[str]:
        """Either scope will do: nothing is changed."""
        held = scopes_of(self.request) if self.request.auth is not None else frozenset[str]()
        writes = self.request.method not in SAFE_METHODS and Scope.JOBS_READ not in held
        return {str(Scope.JOBS_WRITE if writes else Scope.JOBS_READ)}

    @extend_schema(
        operation_id="plan_job",
        summary="Plan a job",
        description="A dry run: judged as `POST /jobs` judges it, and nothing is stored, nor any limit used up. Needs "
        "`jobs:read` or `jobs:write`.\n\n"
        "`predicted_start` is an estimate: not before the job is due and its host's block is over, behind `ahead` at "
        "the host's rate, and, while the pool is full, at the tenant's share of it, by how long its last jobs took. "
        "What others will submit is not known.",
        tags=["jobs"],
        request=JobSubmissionSerializer,
        examples=[
            OpenApiExample("A page", value={"url": "https://example.com/search?q=snow"}, request_only=True),
            OpenApiExample("Behind sixteen others", value=_EXAMPLE, response_only=True, status_codes=["200"]),
        ],
        responses={200: PlanSerializer, **problems(*WITH_BODY)},
    )
    def post(self, request: Request) -> Response:
        submission = read_submission(request.data, now=timezone.now())
        tenant = tenant_of(request)
        return Response(_document(tenant, plan(tenant, submission)))


def _document(tenant: Tenant, found: Plan) -> Document:
    submission, host = found.submission, found.host
    rate = throttle.quota_of(tenant)
    return {
        "url": submission.target.url,
        "method": submission.method,
        "priority": submission.priority.label,
        "host": {
            "name": host.host,
            "rate": host.rate,
            "burst": host.burst,
            "concurrency": host.concurrency,
            "pace": host.pace,
            "paused": host.paused,
            "blocked_until": rfc3339_or_none(host.blocked_until),
        },
        "quota": {
            "submit_rate": {"limit": tenant.submit_rate, "left": None if tenant.submit_rate is None else rate.left},
            "max_queued": {"limit": tenant.max_queued, "left": queue_room(tenant, found.ahead.queued)},
        },
        "waiting_on": None if found.waiting.on is None else found.waiting.on.value,
        "predicted_start": rfc3339_or_none(found.starts_at),
        "ahead": {"same_host": found.ahead.lane, "queued": found.ahead.queued},
    }

"""`GET /stats`: what the tenant has, and what it may."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.views import ServiceView
from jobs import parameters
from jobs.representation import Document
from jobs.schema import problems
from jobs.serializers import PRIORITIES, STATUSES
from jobs.states import Priority, State
from query.figures import COUNT_LIMIT, Figures, read_figures
from tenants import throttle
from tenants.authentication import tenant_of
from tenants.models import Tenant

_EXAMPLE: Final = {
    "jobs": {
        "queued": {"high": 0, "normal": 12, "low": 400},
        "running": {"high": 1, "normal": 19, "low": 0},
        "succeeded": {"high": 310, "normal": 90211, "low": 0},
        "failed": {"high": 2, "normal": 77, "low": 0},
        "cancelled": {"high": 0, "normal": 1, "low": 0},
    },
    "at_least": [],
    "oldest_queued_seconds": 12.8,
    "limits": {
        "submit_rate": {"limit": 50, "left": 49},
        "max_queued": {"limit": 100000, "left": 99588},
        "max_running": {"limit": None, "left": None},
    },
    "paused": False,
    "bytes_stored": 18446744,
}


class ByPrioritySerializer(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {priority: serializers.IntegerField(min_value=0) for priority in PRIORITIES}


class ByStateSerializer(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {state: ByPrioritySerializer() for state in STATUSES}


class LimitSerializer(serializers.Serializer[Any]):
    """Null: no limit, or, in `left`, that more is used than is counted."""

    limit = serializers.IntegerField(allow_null=True)
    left = serializers.IntegerField(allow_null=True)


class LimitsSerializer(serializers.Serializer[Any]):
    submit_rate = LimitSerializer(help_text="Jobs a second; `left` as this web process last knew it.")
    max_queued = LimitSerializer(help_text="Jobs queued at once.")
    max_running = LimitSerializer(help_text="Jobs running at once.")


class StatsSerializer(serializers.Serializer[Any]):
    jobs = ByStateSerializer(help_text="Jobs by state and priority, those kept now.")
    at_least = serializers.ListField(
        child=serializers.ChoiceField(choices=STATUSES),
        help_text=f"States counted no further than {COUNT_LIMIT:,}; they have at least so many.",
    )
    oldest_queued_seconds = serializers.FloatField(
        allow_null=True, help_text="Since the oldest queued job was submitted; null where none is queued."
    )
    limits = LimitsSerializer()
    paused = serializers.BooleanField(help_text="The operator has paused the tenant: nothing starts.")
    bytes_stored = serializers.IntegerField(help_text="Of results that have not expired, by the day.")


class StatsView(ServiceView):
    """The tenant's figures and limits."""

    name = "Figures"

    @extend_schema(
        operation_id="get_stats",
        summary="Read the tenant's figures",
        description="Costs the same however many jobs there are: ends are added up as they come, and what is queued or "
        f"running is counted up to {COUNT_LIMIT:,} in each state.",
        tags=["stats"],
        examples=[OpenApiExample("A tenant at work", value=_EXAMPLE, response_only=True)],
        responses={200: StatsSerializer, **problems(parameters.InvalidParameter)},
    )
    def get(self, request: Request) -> Response:
        parameters.read_parameters(request.query_params, {})
        tenant = tenant_of(request)
        return Response(_document(tenant, read_figures(tenant.id)))


def _document(tenant: Tenant, figures: Figures) -> Document:
    rate = throttle.quota_of(tenant)
    return {
        "jobs": {
            state.value: {priority.label: figures.jobs[state][priority] for priority in Priority} for state in State
        },
        "at_least": [state.value for state in figures.at_least],
        "oldest_queued_seconds": figures.oldest_queued_seconds,
        "limits": {
            "submit_rate": {"limit": tenant.submit_rate, "left": None if tenant.submit_rate is None else rate.left},
            "max_queued": _limit(tenant.max_queued, figures, State.QUEUED),
            "max_running": _limit(tenant.max_running, figures, State.RUNNING),
        },
        "paused": tenant.paused,
        "bytes_stored": figures.bytes_stored,
    }


def _limit(limit: int | None, figures: Figures, state: State) -> Document:
    unknown = limit is None or (state in figures.at_least and limit > COUNT_LIMIT)
    left = None if unknown or limit is None else max(0, limit - figures.total(state))
    return {"limit": limit, "left": left}

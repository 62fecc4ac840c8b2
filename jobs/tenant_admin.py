"""The admin of tenants with what they have in the queue: the tenants app does not know of jobs."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.db.models import IntegerField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest

from jobs.states import State
from tenants.admin import TenantAdmin
from tenants.models import Tenant

COUNTED: Final = 1000

_COUNT: Final = """
SELECT count(*) FROM (
    SELECT FROM jobs_job WHERE tenant_id = tenants_tenant.id AND state = %s LIMIT %s) counted
"""


def _jobs_in(state: State) -> RawSQL:
    """How many of a tenant's jobs are in that state, counted up to one more than COUNTED along an index."""
    return RawSQL(_COUNT, [state.value, COUNTED + 1], output_field=IntegerField())  # noqa: S611  a constant


class TenantWithJobsAdmin(TenantAdmin):
    """Tenants, their limits, and how near they are to them."""

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        """The counts behind name and `paused`."""
        names = self.list_display
        return (*names[:2], "queued", "running", *names[2:])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        counts = {"queued_jobs": _jobs_in(State.QUEUED), "running_jobs": _jobs_in(State.RUNNING)}
        return super().get_queryset(request).annotate(**counts)

    @admin.display(description="queued")
    def queued(self, tenant: Any) -> str:
        return _count(tenant.queued_jobs)

    @admin.display(description="running")
    def running(self, tenant: Any) -> str:
        return _count(tenant.running_jobs)


def _count(number: int) -> str:
    return f"over {COUNTED:,}" if number > COUNTED else f"{number:,}"

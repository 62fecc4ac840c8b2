"""What operators see of the queue. Nothing here writes a row by itself; failed jobs can be redriven, by the same way as
from the command line."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.db.models.functions import Length, Now
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html

from jobs import dead_letters, surroundings
from jobs.host_admin import CrawlDelayAdmin, HostPolicyAdmin, HostStateAdmin
from jobs.models import (
    Attempt,
    Counter,
    CrawlDelay,
    FinishEvent,
    HostPolicy,
    HostState,
    IdempotencyRecord,
    Job,
    JobEvent,
    Tally,
    WorkerProcess,
)
from jobs.read_only import ReadOnly
from jobs.tenant_admin import TenantWithJobsAdmin
from jobs.waiting import explain
from tenants.models import Tenant

if TYPE_CHECKING:  # generic for the type checker only
    PaginatorBase = Paginator[Any]
    ModelAdminBase = admin.ModelAdmin[Any]
    JobEventInlineBase = admin.TabularInline[JobEvent, Job]
    AttemptInlineBase = admin.StackedInline[Attempt, Job]
else:
    PaginatorBase = Paginator
    ModelAdminBase = admin.ModelAdmin
    JobEventInlineBase = admin.TabularInline
    AttemptInlineBase = admin.StackedInline

COUNTED_ROWS: Final = 10_000


class CappedPaginator(PaginatorBase):
    """Pages that count no more than COUNTED_ROWS rows: a full count of a big table takes longer than a person waits."""

    @cached_property
    def count(self) -> int:
        return cast("QuerySet[Any]", self.object_list)[:COUNTED_ROWS].count()


def timings_in_words(attempt: Attempt) -> str:
    """How long each part took, in milliseconds."""
    return ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in attempt.timings.items()) or "-"


def evidence_in_words(attempt: Attempt) -> str:
    """The connection and what was said of the character set, as far as any was seen."""
    said = [f"{name} {value}" for part in attempt.evidence.values() for name, value in part.items() if value]
    return ", ".join(said) or "-"


class BigTableAdmin(ReadOnly, ModelAdminBase):
    """A read-only list that stays quick however many rows there are."""

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # one count of the whole table per choice
    list_per_page = 50


class AttemptInline(ReadOnly, AttemptInlineBase):
    model = Attempt
    extra = 0
    ordering = ("claim_no",)
    readonly_fields = ("phases", "seen")
    fields = (
        ("number", "claim_no", "outcome", "http_status"),
        ("error_code", "error_detail"),
        ("worker", "started_at", "finished_at"),
        "phases",
        "redirects",
        "response_headers",
        "seen",
        "body_snippet",
    )

    @admin.display(description="timings")
    def phases(self, attempt: Attempt) -> str:
        return timings_in_words(attempt)

    @admin.display(description="connection and charset")
    def seen(self, attempt: Attempt) -> str:
        return evidence_in_words(attempt)


class JobEventInline(ReadOnly, JobEventInlineBase):
    model = JobEvent
    extra = 0
    ordering = ("seq",)
    fields = ("seq", "at", "from_state", "to_state", "reason", "attempt")


class JobChangeList(ChangeList):
    """A page of jobs with what stands in their way, read for all of them at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list: list[Any] = list(self.result_list)
        around = surroundings.look(self.result_list)
        for job in self.result_list:
            job.facts = around.of(job)


@admin.register(Job)
class JobAdmin(BigTableAdmin):
    list_display = (
        "short_id",
        "tenant",
        "state",
        "waits_for",
        "last_error",
        "priority",
        "host",
        "attempts_used",
        "age",
    )
    list_filter = ("state", "priority", "method")
    list_select_related = ("tenant",)
    ordering = ("-id",)
    raw_id_fields = ("tenant",)
    search_fields = ("host", "url")
    search_help_text = "A job's id, the beginning of a host, or a part of a URL."
    inlines = (AttemptInline, JobEventInline)
    actions = ("redrive",)
    readonly_fields = ("body_size", "created_at", "waits_for")
    fieldsets = (
        (None, {"fields": ("tenant", ("state", "waits_for"), "reason", "priority", "tags")}),
        ("Request", {"fields": ("method", "url", "host", "headers", "body_size", "callback_url")}),
        (
            "Limits",
            {
                "fields": (
                    ("deadline_seconds", "max_attempts", "max_bytes"),
                    ("executor", "follow_redirects", "retry_unsafe"),
                )
            },
        ),
        (
            "When",
            {
                "fields": (
                    ("created_at", "run_at", "eligible_at"),
                    ("started_at", "finished_at"),
                    ("published_at", "finish_published_at"),
                )
            },
        ),
        (
            "Lease",
            {
                "fields": (
                    ("worker", "claim_no", "attempts", "losses"),
                    ("claimed_at", "lease_expires_at", "cancel_requested_at"),
                )
            },
        ),
        ("Last error", {"fields": (("error_code", "error_http_status", "error_at"), "error_detail")}),
        (
            "Result",
            {
                "fields": (
                    "result_key",
                    ("result_bytes", "result_content_type", "result_http_status"),
                    "result_sha256",
                    "result_final_url",
                    "result_expires_at",
                )
            },
        ),
    )

    @admin.action(description="Redrive: give those that failed a fresh set of attempts", permissions=["redrive"])
    def redrive(self, request: HttpRequest, chosen: QuerySet[Job]) -> None:
        """Moves the failed ones among the chosen, however many those are."""
        moved = dead_letters.redrive(chosen)
        self.message_user(request, f"{moved} redriven; what has not failed is left as it is.")

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        """Who may change jobs at all; the pages themselves stay read-only."""
        return bool(request.user.has_perm("jobs.change_job"))

    @admin.display(description="id", ordering="-id")
    def short_id(self, job: Job) -> str:
        """Its end, which tells jobs apart; the beginning is the time, and the whole would wrap over four lines."""
        return format_html('<span title="{}">…{}</span>', job.id, str(job.id)[-12:])

    @admin.display(description="waits for")
    def waits_for(self, job: Any) -> str | None:
        """As `waiting_on` in the API, and until when if that lies ahead and is known."""
        facts = job.facts if hasattr(job, "facts") else surroundings.look([job]).of(job)
        waiting = explain(job, facts, now=job.read_at)
        ahead = waiting.eligible_at is not None and waiting.eligible_at > job.read_at
        return f"{waiting.on} until {waiting.eligible_at:%Y-%m-%d %H:%M:%S}" if waiting.on and ahead else waiting.on

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobChangeList

    @admin.display(description="attempts")
    def attempts_used(self, job: Job) -> str:
        return f"{job.attempts} of {job.max_attempts}"

    @admin.display(ordering="-id")
    def age(self, job: Job) -> timedelta:
        seconds = (timezone.now() - job.created_at).total_seconds()
        return timedelta(seconds=max(int(seconds), 0))

    @admin.display(ordering="error_code")
    def last_error(self, job: Job) -> str:
        return job.error_code

    @admin.display(description="body")
    def body_size(self, job: Any) -> str:
        return f"{job.body_length or 0} bytes"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        """Without the bodies: a page of fifty could hold as many MiB."""
        jobs: QuerySet[Job] = super().get_queryset(request)
        return jobs.defer("body").annotate(body_length=Length("body"), read_at=Now())

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """By id where the text is one (the primary key answers); else by the host's beginning or a part of the URL."""
        text = search_term.strip()
        if not text or "\0" in text:
            return queryset, False
        try:
            return queryset.filter(pk=uuid.UUID(text)), False
        except ValueError:
            matches = models.Q(host__startswith=text.lower()) | models.Q(url__contains=text)
            return queryset.filter(matches), False


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(BigTableAdmin):
    list_display = ("key", "call", "tenant", "job_id", "created_at")
    list_select_related = ("tenant",)
    ordering = ("-id",)
    raw_id_fields = ("tenant", "job")
    search_fields = ("=key",)


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ReadOnly, ModelAdminBase):
    list_display = ("name", "alive", "running", "slots", "started_at", "seen_at")
    ordering: ClassVar = ("-seen_at",)

    @admin.display(boolean=True)
    def alive(self, process: WorkerProcess) -> bool:
        """Whether its leases, and its place in the pool, can still be good."""
        return (timezone.now() - process.seen_at).total_seconds() < settings.LEASE_SECONDS


@admin.register(Attempt)
class AttemptAdmin(BigTableAdmin):
    list_display = ("job_id", "number", "outcome", "error_code", "http_status", "worker", "started_at", "finished_at")
    list_filter = ("outcome",)
    ordering = ("-id",)
    raw_id_fields = ("job",)
    readonly_fields = ("phases",)
    exclude = ("timings",)
    search_fields = ("=job__id", "=error_code")
    search_help_text = "A job's id, or an error code."

    @admin.display(description="timings")
    def phases(self, attempt: Attempt) -> str:
        return timings_in_words(attempt)


@admin.register(JobEvent)
class JobEventAdmin(BigTableAdmin):
    list_display = ("seq", "job_id", "at", "from_state", "to_state", "reason", "attempt")
    list_filter = ("to_state",)
    ordering = ("-seq",)
    raw_id_fields = ("job",)
    search_fields = ("=job__id", "=reason")
    search_help_text = "A job's id, or a reason."


@admin.register(FinishEvent)
class FinishEventAdmin(BigTableAdmin):
    list_display = ("seq", "job_id", "tenant", "at")
    list_select_related = ("tenant",)
    ordering = ("-seq",)
    raw_id_fields = ("tenant", "job")


@admin.register(Tally)
class TallyAdmin(BigTableAdmin):
    list_display = ("tenant", "state", "priority", "until", "taken_off", "jobs", "bytes")
    list_select_related = ("tenant",)
    ordering = ("-id",)
    raw_id_fields = ("tenant",)


@admin.register(Counter)
class CounterAdmin(ReadOnly, ModelAdminBase):
    list_display = ("name", "value")
    ordering: ClassVar = ("name",)


admin.site.unregister(Tenant)
admin.site.register(Tenant, TenantWithJobsAdmin)
admin.site.register(HostPolicy, HostPolicyAdmin)
admin.site.register(HostState, HostStateAdmin)
admin.site.register(CrawlDelay, CrawlDelayAdmin)

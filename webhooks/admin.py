"""What operators see of webhooks, and what they may do: enable, disable and replay."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from jobs.admin import BigTableAdmin
from jobs.read_only import ReadOnly
from webhooks import endpoints, replays
from webhooks.models import Delivery, DeliveryTry, Endpoint
from webhooks.replays import EndpointDisabled

if TYPE_CHECKING:  # generic for the type checker only
    TryInlineBase = admin.TabularInline[DeliveryTry, Delivery]
else:
    TryInlineBase = admin.TabularInline


@admin.register(Endpoint)
class EndpointAdmin(BigTableAdmin):
    """The secrets are shown nowhere."""

    list_display = ("url", "tenant", "enabled", "failing_since", "disabled_reason", "created_at")
    list_select_related = ("tenant",)
    list_filter = (("disabled_at", admin.EmptyFieldListFilter), ("failing_since", admin.EmptyFieldListFilter))
    ordering = ("-id",)
    search_fields = ("url", "description")
    fields = (
        ("tenant", "url"),
        "description",
        ("created_at", "deleted_at"),
        ("failing_since", "disabled_at"),
        "disabled_reason",
        ("rotated_at", "previous_expires_at"),
    )
    readonly_fields = ("created_at", "rotated_at", "previous_expires_at")
    actions = ("enable", "disable")

    @admin.display(boolean=True)
    def enabled(self, endpoint: Endpoint) -> bool:
        return endpoint.disabled_at is None and endpoint.deleted_at is None

    @admin.action(description="Enable: begin anew, what failed before is forgotten", permissions=["switch"])
    def enable(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Deleted ones stay as they are."""
        count = chosen.filter(deleted_at=None).update(disabled_at=None, disabled_reason="", failing_since=None)
        self.message_user(request, f"{count} enabled.")

    @admin.action(description="Disable: send nothing to them; the tenant sees that it was you", permissions=["switch"])
    def disable(self, request: HttpRequest, chosen: QuerySet[Endpoint]) -> None:
        """Those that are disabled keep their reason."""
        count = chosen.filter(deleted_at=None, disabled_at=None).update(
            disabled_at=Now(), disabled_reason=endpoints.DISABLED_BY_OPERATOR
        )
        self.message_user(request, f"{count} disabled.")

    def has_switch_permission(self, request: HttpRequest) -> bool:
        """Who may change endpoints; the pages themselves stay read-only."""
        return bool(request.user.has_perm("webhooks.change_endpoint"))


class TryInline(ReadOnly, TryInlineBase):
    model = DeliveryTry
    extra = 0
    ordering = ("number",)
    fields = ("number", "at", "status_code", "latency_ms", "error_code", "error_detail", "answer")


@admin.register(Delivery)
class DeliveryAdmin(BigTableAdmin):
    list_display = ("id", "tenant", "place", "event_type", "status", "tries", "next_try_at", "last_error_code")
    list_select_related = ("tenant", "endpoint")
    list_filter = ("status", "event_type")
    ordering = ("-id",)
    search_fields = ("=id", "=job_id")
    search_help_text = "A delivery's id (the webhook-id), or a job's."
    inlines = (TryInline,)
    actions = ("replay",)
    readonly_fields = ("text", "created_at", "place")
    exclude = ("body",)

    @admin.display(description="to")
    def place(self, delivery: Delivery) -> str:
        """Where it goes now."""
        return delivery.url or (delivery.endpoint.url if delivery.endpoint else "")

    @admin.display(description="body")
    def text(self, delivery: Delivery) -> str:
        return bytes(delivery.body).decode()

    @admin.action(description="Replay: send them anew under the same webhook-id", permissions=["replay"])
    def replay(self, request: HttpRequest, chosen: QuerySet[Delivery]) -> None:
        """Those of endpoints that are disabled stay as they are."""
        sent = 0
        for delivery in chosen.select_related("endpoint"):
            try:
                replays.replay(delivery)
                sent += 1
            except EndpointDisabled:
                continue
        self.message_user(request, f"{sent} are sent anew; those to disabled endpoints are left as they are.")

    def has_replay_permission(self, request: HttpRequest) -> bool:
        """Who may change deliveries; the pages themselves stay read-only."""
        return bool(request.user.has_perm("webhooks.change_delivery"))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By ids alone; other text finds nothing, at no cost."""
        if not search_term.strip():
            return queryset, False
        try:
            wanted = uuid.UUID(search_term.strip())
        except ValueError:
            return queryset.none(), False
        return queryset.filter(Q(pk=wanted) | Q(job_id=wanted)), False

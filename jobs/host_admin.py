"""The admin of hosts: policies, which operators change, beside what the hosts themselves have told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now
from django.http import HttpRequest

from jobs import host_policies
from jobs.host_policies import BlockNotLifted
from jobs.models import HostPolicy, HostState
from jobs.read_only import ReadOnly
from jobs.targets import InvalidTarget

if TYPE_CHECKING:  # generic for the type checker only
    ModelAdminBase = admin.ModelAdmin[Any]
    PolicyFormBase = forms.ModelForm[HostPolicy]
else:
    ModelAdminBase = admin.ModelAdmin
    PolicyFormBase = forms.ModelForm


class HostPolicyForm(PolicyFormBase):
    """A policy as the command would take it."""

    class Meta:
        model = HostPolicy
        fields = ("host", "rate", "burst", "concurrency", "adaptive", "paused", "note")

    def clean_host(self) -> str:
        """As it is stored, however it was written."""
        try:
            return host_policies.host_meant(self.cleaned_data["host"])
        except InvalidTarget as error:
            raise forms.ValidationError(str(error)) from error

    def clean_rate(self) -> Any:
        return self._checked("rate")

    def clean_burst(self) -> Any:
        return self._checked("burst")

    def clean_concurrency(self) -> Any:
        return self._checked("concurrency")

    def _checked(self, name: str) -> Any:
        value = self.cleaned_data[name]
        problem = None if value is None else host_policies.CHECKS[name](value)
        if problem is not None:
            raise forms.ValidationError(f"It {problem}.")
        return value


class HostPolicyAdmin(ModelAdminBase):
    """Changes hold for all tenants within two seconds."""

    form = HostPolicyForm
    list_display = (
        "host",
        "rate",
        "burst",
        "concurrency",
        "adaptive",
        "paused",
        "blocked_until",
        "pace",
        "changed_by",
        "changed_at",
    )
    list_filter = ("paused", "adaptive")
    search_fields = ("host", "note")
    ordering: ClassVar = ("host",)
    readonly_fields = ("blocked_until", "pace", "changed_by", "changed_at")

    def get_readonly_fields(self, request: HttpRequest, obj: HostPolicy | None = None) -> tuple[str, ...]:
        """The host is the row's name: another one would be another policy."""
        return self.readonly_fields if obj is None else ("host", *self.readonly_fields)

    def get_queryset(self, request: HttpRequest) -> QuerySet[HostPolicy]:
        state = HostState.objects.filter(host=OuterRef("host"))
        block = state.filter(blocked_until__gt=Now()).values("blocked_until")
        stated = (
            super().get_queryset(request).annotate(block=Subquery(block), state_pace=Subquery(state.values("pace")))
        )
        return cast("QuerySet[HostPolicy]", stated)

    @admin.display(description="blocked until")
    def blocked_until(self, policy: Any) -> Any:
        return getattr(policy, "block", None)

    @admin.display(description="pace")
    def pace(self, policy: Any) -> str:
        """The part of its rate that a host which answered 429 or 503 gets now."""
        pace = getattr(policy, "state_pace", None)
        return f"{pace:.0%}" if pace is not None and policy.adaptive else "100%"

    def save_model(self, request: HttpRequest, obj: HostPolicy, form: Any, change: bool) -> None:
        changes = {name: form.cleaned_data[name] for name in form.cleaned_data if name != "host"}
        host_policies.change(obj.host, changes, by=request.user.get_username())


class CrawlDelayAdmin(ReadOnly, ModelAdminBase):
    """What the robots.txt of hosts asks for; a host policy with a rate of its own stands above it."""

    list_display = ("host", "seconds", "read_at")
    search_fields = ("host",)
    ordering: ClassVar = ("-seconds", "host")


class HostStateAdmin(ReadOnly, ModelAdminBase):
    """What hosts have told: blocks by Retry-After, and the pace at which they are called after 429 and 503."""

    list_display = ("host", "blocked", "blocked_until", "blocked_by", "shown_pace", "changed_at")
    search_fields = ("host",)
    ordering: ClassVar = ("-blocked_until", "host")
    actions = ("lift_blocks",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[HostState]:
        states: QuerySet[HostState] = super().get_queryset(request)
        return states.annotate(is_blocked=Q(blocked_until__gt=Now()))

    @admin.display(boolean=True)
    def blocked(self, state: Any) -> bool:
        return bool(state.is_blocked)

    @admin.display(description="pace", ordering="pace")
    def shown_pace(self, state: HostState) -> str:
        return f"{state.pace:.0%}"

    @admin.action(description="Lift the block: call the host again at once", permissions=["lift"])
    def lift_blocks(self, request: HttpRequest, chosen: QuerySet[HostState]) -> None:
        """For each of the chosen hosts."""
        try:
            for state in chosen:
                host_policies.lift_block(state.host)
        except BlockNotLifted as error:
            self.message_user(request, error.detail, messages.ERROR)
        else:
            self.message_user(request, f"{len(chosen)} may be called again.")

    def has_lift_permission(self, request: HttpRequest) -> bool:
        """Who may change what is decided about hosts; what they told stays as it is."""
        return bool(request.user.has_perm("jobs.change_hostpolicy"))

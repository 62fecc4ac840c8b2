"""What operators see of tenants, their keys and their people. A key's hash is never shown, its text once."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html

from core.proxies import InvalidProxy, check_proxy, parse_proxy, seal_proxy
from tenants.models import ApiKey, Membership, Scope, Tenant

if TYPE_CHECKING:  # generic for the type checker only
    TenantAdminBase = admin.ModelAdmin[Tenant]
    ApiKeyAdminBase = admin.ModelAdmin[ApiKey]
    MembershipAdminBase = admin.ModelAdmin[Membership]
    ApiKeyFormBase = forms.ModelForm[ApiKey]
    TenantFormBase = forms.ModelForm[Tenant]
else:
    TenantAdminBase = ApiKeyAdminBase = MembershipAdminBase = admin.ModelAdmin
    ApiKeyFormBase = TenantFormBase = forms.ModelForm

admin.site.site_header = "Scraping jobs"
admin.site.site_title = "Scraping jobs"
admin.site.index_title = "Operations"


class TenantForm(TenantFormBase):
    """A proxy goes in here and never comes out."""

    new_proxy = forms.CharField(
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="http://, https:// or socks5://user:password@host:port, for jobs without one of their own. Kept "
        "sealed and never shown; leave it empty to change nothing.",
    )
    remove_proxy = forms.BooleanField(required=False, help_text="Jobs without a proxy of their own go without one.")

    class Meta:
        model = Tenant
        fields = ("name", "paused", "weight", "max_running", "max_queued", "submit_rate", "respect_robots")

    def clean_new_proxy(self) -> str:
        """Sealed; the message does not repeat what was typed."""
        text = self.cleaned_data["new_proxy"]
        if not text:
            return ""
        try:
            proxy = parse_proxy(text)
            check_proxy(proxy)
        except InvalidProxy as error:
            raise forms.ValidationError(str(error)) from None
        return seal_proxy(proxy)

    def save(self, commit: bool = True) -> Tenant:
        """Removing wins nothing over a new one: what was typed counts."""
        if self.cleaned_data["new_proxy"]:
            self.instance.proxy = self.cleaned_data["new_proxy"]
        elif self.cleaned_data["remove_proxy"]:
            self.instance.proxy = ""
        return super().save(commit)


@admin.register(Tenant)
class TenantAdmin(TenantAdminBase):
    """Tenants and their limits, which hold as soon as they are saved. (`jobs.tenant_admin` adds counts of jobs.)"""

    list_display = ("name", "paused", "weight", "max_running", "max_queued", "submit_rate", "live_keys", "created_at")
    list_filter = ("paused",)
    list_per_page = 50
    actions = ("pause", "resume")
    search_fields = ("name", "id")
    search_help_text = "Part of the name, or an id"
    form = TenantForm
    readonly_fields = ("has_proxy", "id", "created_at")
    fieldsets = (
        (None, {"fields": ("name", "paused", "id", "created_at")}),
        ("Limits", {"fields": ("weight", "max_running", "max_queued", "submit_rate")}),
        ("Fetching", {"fields": ("respect_robots", "has_proxy", "new_proxy", "remove_proxy")}),
    )

    @admin.display(description="proxy", boolean=True)
    def has_proxy(self, tenant: Tenant) -> bool:
        """Whether there is one."""
        return bool(tenant.proxy)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        live = ApiKey.objects.filter(
            Q(expires_at=None) | Q(expires_at__gt=Now()), tenant=OuterRef("pk"), revoked_at=None
        )
        counted = live.order_by().values("tenant").annotate(number=Count("pk")).values("number")
        # A subquery: a join and a GROUP BY would count for every tenant, not for those on the page.
        return super().get_queryset(request).annotate(live_key_count=Coalesce(Subquery(counted), 0))

    @admin.display(description="live keys", ordering="live_key_count")
    def live_keys(self, tenant: Any) -> int:
        """How many keys work now."""
        return int(tenant.live_key_count)

    @admin.action(description="Pause selected tenants: jobs are accepted, none starts", permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        """What runs goes on."""
        count = queryset.filter(paused=False).update(paused=True)
        self.message_user(request, f"{count} paused.", messages.SUCCESS)

    @admin.action(description="Resume selected tenants", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Tenant]) -> None:
        """Their waiting jobs may start."""
        count = queryset.filter(paused=True).update(paused=False)
        self.message_user(request, f"{count} resumed.", messages.SUCCESS)


class ApiKeyForm(ApiKeyFormBase):
    """Scopes are ticked, not typed."""

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        initial=Scope.values,
        widget=forms.CheckboxSelectMultiple,
        help_text="What the key may do.",
    )

    class Meta:
        model = ApiKey
        fields = ("tenant", "scopes", "expires_at")


class StateFilter(admin.SimpleListFilter):
    """Live, expired, revoked."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The choices."""
        return [("live", "Live"), ("expired", "Expired"), ("revoked", "Revoked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        """The keys of the chosen state."""
        match self.value():
            case "live":
                return queryset.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None)
            case "expired":
                return queryset.filter(expires_at__lte=Now(), revoked_at=None)
            case "revoked":
                return queryset.exclude(revoked_at=None)
        return queryset


@admin.register(ApiKey)
class ApiKeyAdmin(ApiKeyAdminBase):
    """Keys: made here as by `manage.py create_api_key`, and revoked; never changed otherwise, never deleted."""

    list_display = ("prefix", "tenant", "state", "scope_names", "last_used", "expires")
    list_filter = (StateFilter,)
    form = ApiKeyForm
    list_select_related = ("tenant",)
    search_fields = ("prefix", "tenant__name")
    search_help_text = "A key's prefix, or a tenant's name"
    autocomplete_fields = ("tenant",)
    actions = ("revoke",)
    readonly_fields = ("prefix", "tenant", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at")

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """What is chosen when a key is made, and what is shown of one."""
        return ("tenant", "scopes", "expires_at") if obj is None else tuple(map(str, self.readonly_fields))

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """A key that is out there does not change."""
        return () if obj is None else tuple(map(str, self.readonly_fields))

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        """Never: a revoked key stays as the record of who could call."""
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Makes the key and shows its text, which cannot be shown again."""
        if change:
            return
        made, plain = ApiKey.issue(obj.tenant, scopes=obj.scopes, expires_at=obj.expires_at)
        obj.pk, obj.prefix = made.pk, made.prefix
        text = format_html("The key, shown this once: <code>{}</code>", plain)
        self.message_user(request, text, messages.WARNING)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        """In one word."""
        if key.revoked_at is not None:
            return "revoked"
        return "expired" if key.expires_at is not None and key.expires_at <= timezone.now() else "live"

    @admin.display(description="last used", ordering="last_used_at")
    def last_used(self, key: ApiKey) -> str | None:
        """To the minute, which is how exactly it is noted."""
        return _to_the_minute(key.last_used_at)

    @admin.display(description="expires", ordering="expires_at")
    def expires(self, key: ApiKey) -> str | None:
        """To the minute."""
        return _to_the_minute(key.expires_at)

    @admin.display(description="scopes")
    def scope_names(self, key: ApiKey) -> str:
        """As they are written in commands."""
        return ", ".join(key.scopes)

    @admin.action(description="Revoke selected API keys, for good", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Keys that were revoked before keep their time."""
        count = queryset.filter(revoked_at=None).update(revoked_at=Coalesce("revoked_at", Now()))
        self.message_user(request, f"{count} revoked.", messages.SUCCESS)


def _to_the_minute(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M}"


@admin.register(Membership)
class MembershipAdmin(MembershipAdminBase):
    """Which person acts for which tenant."""

    list_display = ("user", "tenant", "created_at")
    list_select_related = ("user", "tenant")
    search_fields = ("user__username", "tenant__name")
    autocomplete_fields = ("user", "tenant")
    readonly_fields = ("created_at",)

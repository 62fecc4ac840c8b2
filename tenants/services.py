"""What operators do to tenants and keys; the commands and the admin are its callers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Coalesce, Now

from core.errors import FieldProblem, ValidationFailed
from tenants.errors import NameTaken, UnknownKey, UnknownTenant
from tenants.models import ApiKey, Scope, Tenant

LIMITS = ("weight", "max_running", "max_queued", "submit_rate")


def find_tenant(name: str) -> Tenant:
    """The tenant of that name; raises UnknownTenant."""
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None:
        raise UnknownTenant(f"There is no tenant named {name!r}.")
    return tenant


def create_tenant(name: str, values: Mapping[str, Any]) -> tuple[Tenant, str]:
    """A new tenant with `values` for its fields, and the plain text of its first key, which has all scopes.

    Raises NameTaken, ValidationFailed.
    """
    tenant = Tenant(name=name, **values)
    _refuse_wrong_values(tenant)
    try:
        with transaction.atomic():
            tenant.save(force_insert=True)
            _, plain = ApiKey.issue(tenant)
    except IntegrityError as error:
        raise NameTaken(f"There is already a tenant named {name!r}.") from error
    return tenant, plain


def change_tenant(tenant: Tenant, changes: Mapping[str, Any]) -> None:
    """Change limits, whether the tenant is paused, and how its jobs are fetched; raises ValidationFailed."""
    for name, value in changes.items():
        setattr(tenant, name, value)
    _refuse_wrong_values(tenant)
    if changes:
        tenant.save(update_fields=list(changes))


def _refuse_wrong_values(tenant: Tenant) -> None:
    try:
        tenant.full_clean(validate_unique=False)
    except ValidationError as error:
        wrong = [
            FieldProblem(f"/{name}", sentence)
            for name, sentences in error.message_dict.items()
            for sentence in sentences
        ]
        raise ValidationFailed("; ".join(f"{e.pointer[1:]}: {e.detail}" for e in wrong), errors=wrong) from error


def issue_key(tenant: Tenant, *, scopes: list[str], expires_at: datetime | None, now: datetime) -> tuple[ApiKey, str]:
    """A new key and its plain text; raises ValidationFailed for an unknown scope or an expiry that is not ahead."""
    unknown = sorted(set(scopes) - set(Scope.values))
    if unknown:
        raise ValidationFailed(f"Unknown scope {', '.join(unknown)}; known are {', '.join(Scope.values)}.")
    if expires_at is not None and expires_at <= now:
        raise ValidationFailed("The expiry must lie ahead.")
    return ApiKey.issue(tenant, scopes=sorted(set(scopes)) or None, expires_at=expires_at)


def revoke_key(prefix: str) -> ApiKey:
    """Revoke the key of that prefix, for good; a second call keeps the first time. Raises UnknownKey."""
    if not ApiKey.objects.filter(prefix=prefix).update(revoked_at=Coalesce("revoked_at", Now())):
        raise UnknownKey(f"There is no API key with the prefix {prefix!r}.")
    return ApiKey.objects.get(prefix=prefix)


def settings_of(tenant: Tenant) -> dict[str, Any]:
    """All that `change_tenant` changes, for a command's answer; of the proxy only whether there is one."""
    names = (*LIMITS, "paused", "respect_robots")
    return {name: getattr(tenant, name) for name in names} | {"has_proxy": bool(tenant.proxy)}


def limits_in(options: Mapping[str, Any]) -> dict[str, int | None]:
    """The limits that a command line names."""
    return {name: options[name] for name in LIMITS if options[name] is not None}

"""What tenants do with their endpoints."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from core.encoding import rfc3339
from core.errors import Conflict, NotFound
from tenants.models import Tenant
from webhooks.announcing import body
from webhooks.events import EventType
from webhooks.models import CallbackSecret, Delivery, Endpoint
from webhooks.secret_keeping import ensure_callback_secret, rotate
from webhooks.signing import new_secret, seal_secret

MAX_ENDPOINTS: Final = 50
DISABLED_BY_TENANT: Final = "Disabled by the tenant."
DISABLED_BY_OPERATOR: Final = "Disabled by an operator."


class TooManyEndpoints(Conflict):
    """The tenant has as many endpoints as it may have."""

    code: ClassVar[str] = "too_many_endpoints"
    default_detail: ClassVar[str] = f"A tenant may have {MAX_ENDPOINTS} endpoints; delete one first."


def living(tenant_id: uuid.UUID) -> QuerySet[Endpoint]:
    """The tenant's endpoints, the oldest first."""
    return Endpoint.objects.filter(tenant_id=tenant_id, deleted_at=None).order_by("id")


def find(tenant_id: uuid.UUID, endpoint_id: uuid.UUID) -> Endpoint:
    """Raises NotFound."""
    endpoint = living(tenant_id).filter(pk=endpoint_id).first()
    if endpoint is None:
        raise NotFound("There is no such endpoint.")
    return endpoint


def register(tenant: Tenant, values: dict[str, Any]) -> tuple[Endpoint, str]:
    """A new endpoint and its secret, which is shown this once. Raises TooManyEndpoints."""
    secret = new_secret()
    with transaction.atomic():
        # One registration of a tenant at a time; intake's checks of the same row do not wait for this lock.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        if living(tenant.pk).count() >= MAX_ENDPOINTS:
            raise TooManyEndpoints
        endpoint = Endpoint.objects.create(tenant=tenant, secret=seal_secret(secret), **values)
    endpoint.refresh_from_db()
    return endpoint, secret


def change(endpoint: Endpoint, values: dict[str, Any]) -> Endpoint:
    """Set what is given; an endpoint that is enabled, or moves, begins with a clean record."""
    changes: dict[str, Any] = {name: values[name] for name in ("url", "description") if name in values}
    if changes.get("url", endpoint.url) != endpoint.url:
        changes["failing_since"] = None  # else the first failure of the new address could be the last of five days
    if values.get("enabled") is True:
        changes |= {"disabled_at": None, "disabled_reason": "", "failing_since": None}
    if values.get("enabled") is False and endpoint.disabled_at is None:
        changes |= {"disabled_at": Now(), "disabled_reason": DISABLED_BY_TENANT}
    if changes:
        Endpoint.objects.filter(pk=endpoint.pk).update(**changes)
        endpoint.refresh_from_db()
    return endpoint


def delete(endpoint: Endpoint) -> None:
    """Nothing is sent to it any more; its row goes once its deliveries have gone."""
    Endpoint.objects.filter(pk=endpoint.pk).update(deleted_at=Now())


def rotate_secret(endpoint: Endpoint, overlap: timedelta) -> tuple[Endpoint, str]:
    """The endpoint and its new secret, which is shown this once."""
    return rotate(Endpoint.objects.filter(pk=endpoint.pk), overlap=overlap)


def callback_secret(tenant_id: uuid.UUID) -> CallbackSecret:
    """What signs the tenant's callbacks; made here if it was never asked for."""
    ensure_callback_secret(tenant_id)
    return CallbackSecret.objects.get(pk=tenant_id)


def rotate_callback_secret(tenant_id: uuid.UUID, overlap: timedelta) -> tuple[CallbackSecret, str]:
    """The same with its new secret, which is shown this once."""
    ensure_callback_secret(tenant_id)
    return rotate(CallbackSecret.objects.filter(pk=tenant_id), overlap=overlap)


def send_test(endpoint: Endpoint) -> Delivery:
    """A delivery that says nothing, to an endpoint in whatever state; tried once, and not held against it."""
    return Delivery.objects.create(
        tenant_id=endpoint.tenant_id,
        endpoint=endpoint,
        destination=f"test {endpoint.pk}",
        event_type=EventType.TEST,
        body=body(EventType.TEST, rfc3339(timezone.now()), {"endpoint": str(endpoint.pk)}),
    )

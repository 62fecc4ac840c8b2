"""How endpoints and deliveries look to callers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from core.encoding import rfc3339
from jobs.timestamps import rfc3339_or_none
from webhooks.models import CallbackSecret, Delivery, DeliveryTry, Endpoint

ENDPOINTS_PATH: Final = "/api/v1/webhook-endpoints"
DELIVERIES_PATH: Final = "/api/v1/deliveries"

Document = dict[str, Any]


def endpoint_document(endpoint: Endpoint, secret: str | None = None) -> Document:
    """With `secret` where it was just made."""
    path = f"{ENDPOINTS_PATH}/{endpoint.pk}"
    shown = {} if secret is None else {"secret": secret}
    return {
        "id": str(endpoint.pk),
        "url": endpoint.url,
        "description": endpoint.description,
        "enabled": endpoint.disabled_at is None,
        "disabled_at": rfc3339_or_none(endpoint.disabled_at),
        "disabled_reason": endpoint.disabled_reason or None,
        "failing_since": rfc3339_or_none(endpoint.failing_since),
        "previous_secret_expires_at": rfc3339_or_none(endpoint.previous_expires_at),
        "created_at": rfc3339(endpoint.created_at),
        **shown,
        "links": {"self": path, "deliveries": f"{DELIVERIES_PATH}?endpoint={endpoint.pk}", "test": f"{path}/test"},
    }


def callback_secret_document(kept: CallbackSecret, secret: str | None = None) -> Document:
    """With `secret` where it was just made."""
    shown = {} if secret is None else {"secret": secret}
    return {
        "created_at": rfc3339(kept.created_at),
        "rotated_at": rfc3339_or_none(kept.rotated_at),
        "previous_secret_expires_at": rfc3339_or_none(kept.previous_expires_at),
        **shown,
    }


def delivery_document(delivery: Delivery) -> Document:
    """As lists have it; of an endpoint's delivery `url` is where it goes now."""
    path = f"{DELIVERIES_PATH}/{delivery.pk}"
    return {
        "id": str(delivery.pk),
        "type": delivery.event_type,
        "status": delivery.status,
        "endpoint": None if delivery.endpoint_id is None else str(delivery.endpoint_id),
        "url": delivery.url or (delivery.endpoint.url if delivery.endpoint else ""),
        "job": None if delivery.job_id is None else str(delivery.job_id),
        "tries": delivery.tries,
        "next_try_at": rfc3339_or_none(delivery.next_try_at),
        "last_status_code": delivery.last_status_code,
        "last_error": _error(delivery.last_error_code, delivery.last_error_detail),
        "created_at": rfc3339(delivery.created_at),
        "delivered_at": rfc3339_or_none(delivery.delivered_at),
        "links": {"self": path, "replay": f"{path}/replay"},
    }


def whole_delivery_document(delivery: Delivery, tries: Iterable[DeliveryTry]) -> Document:
    """With the body as it is sent, and each try, the oldest first."""
    return delivery_document(delivery) | {
        "body": bytes(delivery.body).decode(),
        "try_log": [_try(one) for one in tries],
    }


def _try(one: DeliveryTry) -> Document:
    return {
        "number": one.number,
        "at": rfc3339(one.at),
        "status_code": one.status_code,
        "latency_ms": one.latency_ms,
        "error": _error(one.error_code, one.error_detail),
        "answer": one.answer,
    }


def _error(code: str, detail: str) -> Document | None:
    return {"code": code, "detail": detail} if code else None

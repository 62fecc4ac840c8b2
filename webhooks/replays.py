"""Deliveries sent once more, under the webhook-id that they have: one, or those of a time range."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final

from django.db import connection
from django.utils import timezone

from core.errors import Conflict, NotFound
from webhooks.endpoint_fields import ReplayRange
from webhooks.events import EventType
from webhooks.models import Delivery
from webhooks.sweeper import first_id_at

MAX_REPLAYED: Final = 10_000
"""By one call; the same call again goes on, since what was replayed is pending then."""

# One whose try is under way is left to it.
_REPLAY: Final = """
UPDATE webhooks_delivery SET status = 'pending', next_try_at = now(), round_tries = 0, claimed_until = NULL
WHERE id = %s AND (status <> 'pending' OR claimed_until IS NULL)
"""

_REPLAY_RANGE: Final = """
UPDATE webhooks_delivery SET status = 'pending', next_try_at = now(), round_tries = 0, claimed_until = NULL
WHERE id IN (
    SELECT id FROM webhooks_delivery
    WHERE endpoint_id = %s AND id >= %s AND id < %s AND status = %s AND event_type <> %s
    ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
"""


class EndpointDisabled(Conflict):
    """Its endpoint takes nothing now, so a replay would end at once."""

    code: ClassVar[str] = "endpoint_disabled"
    default_detail: ClassVar[str] = "The endpoint is disabled or deleted; enable it before you replay."


def find(tenant_id: uuid.UUID, delivery_id: uuid.UUID) -> Delivery:
    """Raises NotFound."""
    delivery = Delivery.objects.select_related("endpoint").filter(tenant_id=tenant_id, pk=delivery_id).first()
    if delivery is None:
        raise NotFound("There is no such delivery.")
    return delivery


def replay(delivery: Delivery) -> Delivery:
    """Send it anew, with a fresh schedule. Raises EndpointDisabled."""
    endpoint = delivery.endpoint
    if endpoint is not None and (endpoint.disabled_at is not None or endpoint.deleted_at is not None):
        raise EndpointDisabled
    with connection.cursor() as cursor:
        cursor.execute(_REPLAY, [delivery.pk])
    delivery.refresh_from_db()
    return delivery


def replay_range(endpoint_id: uuid.UUID, chosen: ReplayRange) -> int:
    """Send anew what was made for the endpoint in that time and stands so, the oldest first; returns how many, up to
    MAX_REPLAYED."""
    until = chosen.until or timezone.now()
    terms: list[Any] = [
        endpoint_id,
        first_id_at(chosen.since),
        first_id_at(until),
        chosen.status,
        EventType.TEST,
        MAX_REPLAYED,
    ]
    with connection.cursor() as cursor:
        cursor.execute(_REPLAY_RANGE, terms)
        return int(cursor.rowcount)

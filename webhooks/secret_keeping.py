"""Secrets in their rows: the first one, and its change for another."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TypeVar

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from webhooks.models import CallbackSecret, SigningSecrets
from webhooks.signing import new_secret, seal_secret

Row = TypeVar("Row", bound=SigningSecrets)


def ensure_callback_secret(tenant_id: uuid.UUID) -> None:
    """Make the tenant's secret for callbacks if there is none yet."""
    if not CallbackSecret.objects.filter(pk=tenant_id).exists():
        CallbackSecret.objects.bulk_create(
            [CallbackSecret(tenant_id=tenant_id, secret=seal_secret(new_secret()))], ignore_conflicts=True
        )


def rotate(rows: QuerySet[Row], *, overlap: timedelta) -> tuple[Row, str]:
    """Give the one row a new secret, and return both; for `overlap` the one before signs as well, any older no more.

    Raises the model's DoesNotExist.
    """
    plain = new_secret()
    with transaction.atomic():
        row = rows.select_for_update().get()
        type(row)._default_manager.filter(pk=row.pk).update(
            previous_secret=row.secret if overlap else "",
            previous_expires_at=Now() + overlap if overlap else None,
            secret=seal_secret(plain),
            rotated_at=Now(),
        )
    row.refresh_from_db()
    return row, plain

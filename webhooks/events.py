"""What tenants are told of, and where a delivery stands."""

from __future__ import annotations

from django.db import models


class EventType(models.TextChoices):
    """The `type` of a webhook's body."""

    JOB_FINISHED = "job.finished", "job.finished"
    TEST = "webhook.test", "webhook.test"


class Status(models.TextChoices):
    """Where a delivery stands. A replay makes any of them pending again."""

    PENDING = "pending", "pending"  # the delivery engine takes it when it is due
    DELIVERED = "delivered", "delivered"  # answered with 2xx
    FAILED = "failed", "failed"  # its tries are used up, or its endpoint takes nothing any more

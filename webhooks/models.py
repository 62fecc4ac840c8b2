"""Where a tenant wants to hear of ended jobs, what it is told, and how each telling went."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from core.ids import new_id
from tenants.models import Tenant
from webhooks.events import EventType, Status


class SigningSecrets(models.Model):
    """One secret to sign with, or two while receivers change over. Sealed (`webhooks.signing`), shown once."""

    secret = models.TextField(editable=False)
    previous_secret = models.TextField(blank=True, default="", editable=False)
    previous_expires_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Until then the previous secret signs as well."
    )
    rotated_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        abstract = True


class Endpoint(SigningSecrets):
    """An address that a tenant registered for the ends of all its jobs."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    url = models.TextField()
    description = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    disabled_at = models.DateTimeField(null=True, blank=True, help_text="Nothing is sent from then on.")
    disabled_reason = models.TextField(blank=True, default="", help_text="A sentence that the tenant reads.")
    failing_since = models.DateTimeField(
        null=True, blank=True, help_text="The first failure after the last success; empty while all is well."
    )
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="Kept until its deliveries are gone.")

    class Meta:
        indexes: ClassVar = [
            # readers: announcing (who is to hear of an end), GET /webhook-endpoints
            models.Index(fields=["tenant", "id"], name="endpoint_of_tenant", condition=Q(deleted_at__isnull=True)),
            # readers: webhooks (command), doctor and /metrics
            models.Index(
                fields=["failing_since"],
                name="endpoint_failing",
                condition=Q(deleted_at__isnull=True, failing_since__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.url


class CallbackSecret(SigningSecrets):
    """What signs the deliveries to the `callback_url` of a tenant's jobs."""

    tenant = models.OneToOneField(Tenant, primary_key=True, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"callback secret of {self.tenant_id}"


class Delivery(models.Model):
    """One event on its way to one place. `id` is the `webhook-id`, the same on every try and replay; the body is kept
    as it is sent, so that the bytes signed are the bytes sent.

    `webhooks.claims` alone writes what comes after its making. A claim moves `next_try_at` to the end of the lease, so
    that a try whose process died is due again by itself.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    endpoint = models.ForeignKey(
        Endpoint, null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    url = models.TextField(blank=True, default="", help_text="The job's callback_url; empty: the endpoint's address.")
    destination = models.CharField(
        max_length=320,
        db_collation="C",
        help_text="What shares limits and breaker: an endpoint, or a tenant's callbacks to one host.",
    )
    event_type = models.CharField(max_length=32, choices=EventType.choices)
    # without a constraint: jobs are dropped when their time is over, and the body tells all there is to tell
    job_id = models.UUIDField(null=True, blank=True)
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="The end that is told of: a job that was retried has several."
    )
    body = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    tries = models.PositiveIntegerField(default=0, help_text="Tries that came to an end, replays included.")
    round_tries = models.PositiveSmallIntegerField(default=0, help_text="The same since the last replay.")
    claim_no = models.PositiveIntegerField(default=0, help_text="Fencing token: grows with each claim, never reset.")
    next_try_at = models.DateTimeField(db_default=Now(), null=True, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True, help_text="A try is under way, until then at most.")
    last_status_code = models.PositiveSmallIntegerField(null=True, blank=True)
    last_error_code = models.CharField(max_length=32, blank=True, default="")
    last_error_detail = models.TextField(blank=True, default="")
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "deliveries"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["job_id", "ended_at", "endpoint"],
                name="delivery_once_per_end_and_endpoint",
                condition=Q(job_id__isnull=False, endpoint__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["job_id", "ended_at"],
                name="delivery_once_per_end_and_callback",
                condition=Q(job_id__isnull=False, endpoint__isnull=True),
            ),
            models.CheckConstraint(condition=Q(status__in=Status.values), name="delivery_status_known"),
            models.CheckConstraint(
                condition=~Q(status=Status.PENDING) | Q(next_try_at__isnull=False), name="delivery_pending_is_due_once"
            ),
            models.CheckConstraint(condition=Q(endpoint__isnull=False) | ~Q(url=""), name="delivery_has_a_place_to_go"),
        ]
        indexes: ClassVar = [
            # reader: claims (which destinations have something due, and what)
            models.Index(
                fields=["destination", "next_try_at", "id"], name="delivery_destinations", condition=Q(status="pending")
            ),
            # readers: doctor and /metrics (the oldest that is due)
            models.Index(fields=["next_try_at"], name="delivery_due", condition=Q(status="pending")),
            # reader: GET /deliveries
            models.Index(fields=["tenant", "-id"], name="delivery_tenant_newest"),
            # readers: GET /deliveries?endpoint=, replay of a time range
            models.Index(fields=["endpoint", "-id"], name="delivery_endpoint_newest"),
            # reader: GET /deliveries?status=
            models.Index(fields=["tenant", "status", "-id"], name="delivery_tenant_status"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class DeliveryTry(models.Model):
    """How one try went. Written once, when it is over."""

    id = models.BigAutoField(primary_key=True)
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="try_set", db_index=False)
    number = models.PositiveIntegerField()
    at = models.DateTimeField(help_text="Its start.")
    status_code = models.PositiveSmallIntegerField(null=True)
    latency_ms = models.PositiveIntegerField()
    error_code = models.CharField(max_length=32, blank=True, default="")
    error_detail = models.TextField(blank=True, default="")
    answer = models.TextField(blank=True, default="", help_text="The beginning of the answer's body.")

    class Meta:
        verbose_name_plural = "delivery tries"
        constraints: ClassVar = [
            # reader: GET /deliveries/{id}
            models.UniqueConstraint(fields=["delivery", "number"], name="delivery_try_once"),
        ]

    def __str__(self) -> str:
        return f"{self.delivery_id} #{self.number}"


class AnnounceMark(models.Model):
    """Up to which end the sweeper has looked whether its deliveries were made; one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.BigIntegerField(help_text="Of `jobs.FinishEvent`.")

    def __str__(self) -> str:
        return str(self.seq)

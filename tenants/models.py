"""Who may call: tenants, their API keys and the people who may log in for them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from datetime import datetime, timedelta
from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import connection, models
from django.db.models.functions import Now

from core.ids import new_id

KEY_BRAND = "sj"
_ALPHABET = string.ascii_letters + string.digits
_SECRET_LENGTH = 32  # 62 ** 32 is 190 bits
_ID_LENGTH = 12
_KEY_SHAPE = re.compile(rf"{KEY_BRAND}_[A-Za-z0-9]{{{_ID_LENGTH}}}_[A-Za-z0-9]{{{_SECRET_LENGTH}}}")
USE_NOTED_EVERY = timedelta(minutes=1)


def validate_name(name: str) -> None:
    """A name is one to 100 printable characters without blanks at its ends; raises ValidationError."""
    if not name or not name.isprintable() or name != name.strip():
        raise ValidationError("Use printable characters, with no blank at either end.", code="invalid_name")


_AT_LEAST_ONE = MinValueValidator(1, message="Must be at least 1. To stop a tenant's jobs, pause it.")


class Tenant(models.Model):
    """A customer: owns jobs, keys and limits, and never sees another tenant's."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=100, unique=True, validators=[validate_name])
    weight = models.PositiveIntegerField(
        default=1,
        validators=[_AT_LEAST_ONE],
        help_text="Share of the pool relative to other tenants with work: one of weight 3 gets three times as much as "
        "one of weight 1.",
    )
    max_running = models.PositiveIntegerField(
        null=True, blank=True, validators=[_AT_LEAST_ONE], help_text="Most jobs running at once; empty: no limit."
    )
    max_queued = models.PositiveIntegerField(
        null=True, blank=True, validators=[_AT_LEAST_ONE], help_text="Most jobs waiting; empty: no limit."
    )
    submit_rate = models.PositiveIntegerField(
        null=True, blank=True, validators=[_AT_LEAST_ONE], help_text="Most jobs submitted a second; empty: no limit."
    )
    paused = models.BooleanField(default=False, help_text="Jobs are accepted, and wait until the tenant is resumed.")
    respect_robots = models.BooleanField(
        default=False, db_default=False, help_text="Jobs heed robots.txt, unless one says otherwise itself."
    )
    proxy = models.TextField(
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Sealed (core.proxies), shown nowhere: what jobs without a proxy of their own go through.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(weight__gte=1), name="tenant_weight_positive"),
            # A limit of 0 would be a second way to say `paused`, which callers are told nothing of.
            models.CheckConstraint(
                condition=models.Q(max_running=None) | models.Q(max_running__gte=1), name="tenant_max_running_positive"
            ),
            models.CheckConstraint(
                condition=models.Q(max_queued=None) | models.Q(max_queued__gte=1), name="tenant_max_queued_positive"
            ),
            models.CheckConstraint(
                condition=models.Q(submit_rate=None) | models.Q(submit_rate__gte=1), name="tenant_submit_rate_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Scope(models.TextChoices):
    """What a key may do."""

    JOBS_READ = "jobs:read", "jobs:read (see jobs and their results)"
    JOBS_WRITE = "jobs:write", "jobs:write (submit, cancel and retry jobs)"


def _all_scopes() -> list[str]:
    return list(Scope.values)


class ApiKey(models.Model):
    """A bearer key `sj_<id>_<secret>`; only the SHA-256 of its secret is kept (190 random bits need no slow hash)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    prefix = models.CharField(
        max_length=32, unique=True, editable=False, help_text="`sj_<id>`: names the key in lists and logs."
    )
    secret_sha256 = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=32, choices=Scope.choices), default=_all_scopes)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Written at most once a minute."
    )

    use_is_noted = False  # no column: what the database's clock said when `find` read the row

    class Meta:
        ordering: ClassVar = ["-created_at"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return self.prefix

    @classmethod
    def issue(
        cls, tenant: Tenant, *, scopes: list[str] | None = None, expires_at: datetime | None = None
    ) -> tuple[ApiKey, str]:
        """Make a key and return it with its plain text, which is not kept and cannot be shown again."""
        prefix = f"{KEY_BRAND}_{_random_text(_ID_LENGTH)}"
        secret = _random_text(_SECRET_LENGTH)
        key = cls.objects.create(
            tenant=tenant,
            prefix=prefix,
            secret_sha256=_sha256(secret),
            scopes=scopes or _all_scopes(),
            expires_at=expires_at,
        )
        return key, f"{prefix}_{secret}"

    @classmethod
    def find(cls, plain: str) -> ApiKey | None:
        """The live key that `plain` is, with its tenant; None for anything else. One query."""
        if not _KEY_SHAPE.fullmatch(plain):
            return None
        prefix, _, secret = plain.rpartition("_")
        with connection.cursor() as cursor:
            cursor.execute(_FIND, [USE_NOTED_EVERY.total_seconds(), prefix])
            row = cursor.fetchone()
        if row is None:
            return None
        key = cls.from_db(connection.alias, _names(cls), row[1 : 1 + len(_names(cls))])
        if not hmac.compare_digest(key.secret_sha256, _sha256(secret)):
            return None
        key.tenant = Tenant.from_db(connection.alias, _names(Tenant), row[1 + len(_names(cls)) :])
        key.use_is_noted = bool(row[0])
        return key

    def touch(self) -> None:
        """Note the use, at most once a minute, so that a busy key does not become a hot row."""
        if self.use_is_noted:
            return
        stale = models.Q(last_used_at=None) | models.Q(last_used_at__lte=Now() - USE_NOTED_EVERY)
        type(self).objects.filter(stale, pk=self.pk).update(last_used_at=Now())


def _names(model: type[models.Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def _columns(model: type[models.Model], alias: str) -> str:
    return ", ".join(f"{alias}.{field.column}" for field in model._meta.concrete_fields)


# Written out, since every request runs it and the ORM takes ten times as long to say the same.
_FIND = f"""
SELECT coalesce(k.last_used_at > statement_timestamp() - %s * interval '1 second', false),
    {_columns(ApiKey, "k")}, {_columns(Tenant, "t")}
FROM tenants_apikey k JOIN tenants_tenant t ON t.id = k.tenant_id
WHERE k.prefix = %s AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > statement_timestamp())
"""  # noqa: S608  put together from the models' own columns


class Membership(models.Model):
    """Lets a person who logs in act for one tenant."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="membership")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"{self.user} for {self.tenant}"


def _random_text(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

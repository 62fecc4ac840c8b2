"""Secrets and signatures as Standard Webhooks has them (https://www.standardwebhooks.com, version 1.0.0)."""

from __future__ import annotations

import base64
import secrets as randomness
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from standardwebhooks import Webhook

from core.sealing import seal, unseal

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
"""24 to 64, says the specification."""
OVERLAP: Final = timedelta(hours=24)
"""How long the previous secret signs as well, unless the tenant says otherwise."""
MAX_OVERLAP: Final = timedelta(days=7)

_PURPOSE: Final = "webhook secret"


def new_secret() -> str:
    """A secret as it is shown to the tenant, once."""
    return PREFIX + base64.b64encode(randomness.token_bytes(SECRET_BYTES)).decode("ascii")


def seal_secret(secret: str) -> str:
    """As it is kept in the database."""
    return seal(secret, purpose=_PURPOSE)


def live_secrets(sealed: str, previous: str, previous_expires_at: datetime | None, *, now: datetime) -> list[str]:
    """The secrets that sign at `now`, the newest first. Raises SealBroken."""
    kept = [sealed]
    if previous and previous_expires_at is not None and previous_expires_at > now:
        kept.append(previous)
    return [unseal(one, purpose=_PURPOSE) for one in kept]


def signed_headers(webhook_id: str, body: bytes, secrets: Sequence[str], *, at: datetime) -> list[tuple[str, str]]:
    """The three headers, with one signature a secret. `at` is the time of the try."""
    moment = at.astimezone(UTC)  # the library would take the hour of any other zone for UTC's
    signatures = [Webhook(secret).sign(webhook_id, moment, body.decode()) for secret in secrets]
    return [
        ("webhook-id", webhook_id),
        ("webhook-timestamp", str(int(moment.timestamp()))),
        ("webhook-signature", " ".join(signatures)),
    ]

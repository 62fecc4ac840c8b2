"""Signatures as Standard Webhooks has them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from core.sealing import SealBroken
from webhooks.signing import live_secrets, new_secret, seal_secret, signed_headers

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def test_the_published_test_vector_verifies() -> None:
    """Of the specification's reference implementations."""
    headers = signed_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        at=datetime.fromtimestamp(1614265330, tz=UTC),
    )
    assert dict(headers) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_time_in_another_zone_is_signed_as_the_same_instant() -> None:
    """The library replaces a time's zone by UTC instead of converting it."""
    secret = new_secret()
    elsewhere = NOW.astimezone(timezone(timedelta(hours=9)))
    assert signed_headers("id", b"{}", [secret], at=elsewhere) == signed_headers("id", b"{}", [secret], at=NOW)


def test_a_changed_body_does_not_verify() -> None:
    secret = new_secret()
    headers = dict(signed_headers("id", b'{"a": 1}', [secret], at=datetime.now(tz=UTC)))
    assert Webhook(secret).verify(b'{"a": 1}', headers) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(b'{"a": 2}', headers)


def test_secrets_are_as_long_as_the_specification_asks_and_never_alike() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert {len(base64.b64decode(secret.removeprefix("whsec_"))) for secret in made} == {32}


def test_the_previous_secret_signs_until_its_time_is_over() -> None:
    new, old = "whsec_bmV3", "whsec_b2xk"
    kept = seal_secret(new), seal_secret(old)
    assert live_secrets(*kept, NOW + timedelta(seconds=1), now=NOW) == [new, old]
    assert live_secrets(*kept, NOW, now=NOW) == [new]
    assert live_secrets(kept[0], "", None, now=NOW) == [new]


def test_what_was_not_sealed_here_is_no_secret() -> None:
    with pytest.raises(SealBroken):
        live_secrets("whsec_bmV3", "", None, now=NOW)

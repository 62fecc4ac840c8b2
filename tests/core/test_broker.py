"""Roles come back to a broker as soon as it is back."""

from __future__ import annotations

from contextlib import suppress

from kombu.exceptions import OperationalError

from core.broker import RECONNECT_SECONDS
from core.celery import app


def test_the_waits_for_a_broker_that_is_away_do_not_grow() -> None:
    waits: list[float] = []
    with suppress(OperationalError), app.connection_for_read("amqp://127.0.0.1:9") as link:
        link.ensure_connection(lambda error, wait: waits.append(wait), max_retries=2)
    assert waits == [RECONNECT_SECONDS] * len(waits)
    assert len(waits) > 1


def test_a_retry_policy_of_a_send_is_obeyed() -> None:
    """beat sends with one; kombu passes its waits by place."""
    waits: list[float] = []
    with suppress(OperationalError), app.connection_for_write("amqp://127.0.0.1:9") as link:
        link._ensure_connection(lambda error, wait: waits.append(wait), 2, 0, 1, 1)
    assert waits[0] == 0
    assert max(waits) <= 1


def test_rabbitmq_confirms_what_it_took_whichever_broker_the_settings_name() -> None:
    rabbitmq, redis = (
        app.connection_for_write(f"{kind}://127.0.0.1:9").transport_options for kind in ("amqp", "redis")
    )
    assert rabbitmq is not None
    assert rabbitmq["confirm_publish"] is True
    assert redis is not None
    assert "confirm_publish" not in redis

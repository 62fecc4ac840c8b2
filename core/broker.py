"""How the roles hold on to a broker that comes and goes."""

from __future__ import annotations

from typing import Any, Final

import kombu
from celery.app.amqp import AMQP

RECONNECT_SECONDS: Final = 1
AMQP_TRANSPORTS: Final = frozenset({"amqp", "amqps", "pyamqp"})
AMQP_OPTIONS: Final[dict[str, Any]] = {"confirm_publish": True}
REDIS_OPTIONS: Final[dict[str, Any]] = {"socket_timeout": 10, "socket_connect_timeout": 5, "socket_keepalive": True}


class Connection(kombu.Connection):
    """Tries again every second, and has RabbitMQ confirm what it took.

    kombu's own waits grow to half a minute: after a long outage the pool would stand still that long although the
    broker is back. Without confirms a message that RabbitMQ dropped counts as sent. Redis gets time limits instead.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = AMQP_OPTIONS if str(self.transport_cls) in AMQP_TRANSPORTS else REDIS_OPTIONS
        self.transport_options = {**own, **(self.transport_options or {})}

    def _ensure_connection(
        self,
        errback: Any = None,
        max_retries: int | None = None,
        interval_start: int = RECONNECT_SECONDS,
        interval_step: int = 0,
        interval_max: int = RECONNECT_SECONDS,
        *others: Any,
        **options: Any,
    ) -> Any:
        """kombu's own, with other defaults; its callers pass the waits by place as well as by name."""
        return super()._ensure_connection(
            errback, max_retries, interval_start, interval_step, interval_max, *others, **options
        )


class Amqp(AMQP):
    """Celery's way to its broker, by such connections."""

    Connection = Connection

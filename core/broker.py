"""How the roles hold on to a broker that comes and goes."""

from __future__ import annotations

from typing import Any, Final

import kombu
from celery.app.amqp import AMQP

RECONNECT_SECONDS: Final = 1


class Connection(kombu.Connection):
    """Tries again every second. kombu's own waits grow to half a minute: after a long outage the pool would stand
    still that long although the broker is back."""

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

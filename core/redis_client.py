"""A way to Redis for those who can do without an answer and must not wait for one."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def impatient(url: str, seconds: float) -> redis.Redis:
    """A client that gives up a connection or an answer after `seconds`, and does not try again by itself."""
    return redis.Redis.from_url(
        url,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=Retry(NoBackoff(), 0),  # its own default would wait seconds for a Redis that is down
    )

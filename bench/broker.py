"""The broker's queues, which must be nobody else's while a benchmark runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import kombu
import redis
from kombu.exceptions import OperationalError

from bench.catalogue import BenchFailed
from jobs.routing import EVENTS_QUEUE, QUEUE_OF_PRIORITY, SWEEPER_QUEUE

QUEUES = (*QUEUE_OF_PRIORITY.values(), EVENTS_QUEUE, SWEEPER_QUEUE)


@contextmanager
def reserved(url: str) -> Iterator[None]:
    """The queues are empty when the block begins and emptied when it ends.

    Raises BenchFailed when a stack works on them: it would take the benchmark's messages.
    """
    _refuse_if_used(url)
    try:
        yield
    finally:
        with kombu.Connection(url) as link:
            for name in QUEUES:
                _queue(link, name).purge()


def kind(url: str) -> str:
    """What the figures call it."""
    return "Redis" if urlsplit(url).scheme.startswith("redis") else "RabbitMQ"


def _refuse_if_used(url: str) -> None:
    try:
        with kombu.Connection(url, connect_timeout=5) as link:
            used = [name for name in QUEUES if _is_used(link, name)]
    except (OperationalError, OSError) as error:
        raise BenchFailed(f"The broker ({kind(url)}) does not answer: {error}") from error
    if used or _redis_has_consumers(url):
        raise BenchFailed(
            f"The queues on {kind(url)} are in use ({', '.join(used) or 'a worker waits there'}); "
            "name another Redis database or RabbitMQ virtual host in BROKER_URL."
        )


def _is_used(link: kombu.Connection, name: str) -> bool:
    found: Any = _queue(link, name).queue_declare()  # the stubs have it wrong
    return bool(found.message_count or found.consumer_count)


def _queue(link: kombu.Connection, name: str) -> kombu.Queue:
    queue = kombu.Queue(name, kombu.Exchange(name), routing_key=name, channel=link.default_channel)
    queue.declare()
    return queue


def _redis_has_consumers(url: str) -> bool:
    if kind(url) != "Redis":
        return False
    number = urlsplit(url).path.strip("/") or "0"
    with redis.Redis.from_url(url) as client:
        return any(entry["db"] == number and entry["cmd"] == "brpop" for entry in client.client_list())

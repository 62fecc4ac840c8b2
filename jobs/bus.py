"""The way to the broker, of whoever sends: one connection, made when first needed and again after it broke."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kombu import Connection, Producer, Queue
from kombu.exceptions import OperationalError

from core.celery import app

CONFIRM_SECONDS = 10.0  # a broker that took a message and says nothing would hold the sender for ever
CONNECT_SECONDS = 5
CLOSE_SECONDS = 1.0  # for taking leave of a broker that may be gone


class Bus:
    """Sends messages; a context manager that closes its connection. Not for use from several threads at once.

    `url` names another broker than BROKER_URL.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._link: Connection | None = None
        self._producer: Producer | None = None

    def send(self, task: str, arguments: Sequence[Any], queue: str) -> None:
        """Send one message; returns once the broker has it (RabbitMQ confirms).

        Raises kombu's OperationalError, or the transport's own error, when it does not; the connection is then dropped.
        """
        try:
            app.send_task(
                task, args=list(arguments), queue=queue, producer=self._connected(), confirm_timeout=CONFIRM_SECONDS
            )
        except BaseException:
            self.close()
            raise

    def holds(self, queues: Sequence[str]) -> int:
        """How many messages lie in `queues`, those in a consumer's hands not counted. Raises as `send` does."""
        try:
            self._connected()
            return 0 if self._link is None else sum([_depth(self._link, name) for name in queues])
        except BaseException:
            self.close()
            raise

    def _connected(self) -> Producer:
        if self._producer is None:
            # No heartbeat: an idle sender has nobody to send it, and RabbitMQ would cut the connection.
            self._link = app.connection_for_write(self._url, heartbeat=0)
            self._link.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS, reraise_as_library_errors=True)
            self._producer = Producer(self._link)
        return self._producer

    def close(self) -> None:
        """Drop the connection, whatever state it is in."""
        link, self._link, self._producer = self._link, None, None
        if link is not None:
            link.collect(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _depth(link: Connection, queue: str) -> int:
    try:
        with link.channel() as channel:
            declared: Any = Queue(queue, channel=channel).queue_declare(passive=True)
            return int(declared.message_count)
    except link.channel_errors:
        return 0  # not there: on Redis every empty queue, on RabbitMQ one that nobody has used yet


BROKER_ERRORS: tuple[type[BaseException], ...] = (
    OperationalError,
    OSError,
    *app.connection_for_write().recoverable_connection_errors,
    *app.connection_for_write().recoverable_channel_errors,
)

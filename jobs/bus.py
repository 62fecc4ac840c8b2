"""The way to the broker, of whoever sends: one connection, made when first needed and again after it broke."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kombu import Connection, Queue
from kombu.exceptions import OperationalError

from core.celery import app
from jobs.messages import Message
from jobs.senders import Sender, sender_of

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
        self._sender: Sender | None = None

    def send(self, task: str, arguments: Sequence[Any], queue: str) -> None:
        """Send one message; returns once the broker has it. Raises as `send_all` does."""
        self.send_all([Message(task, arguments, queue)])

    def send_all(self, messages: Sequence[Message]) -> None:
        """Send messages; returns once the broker has all of them (RabbitMQ confirms).

        Raises kombu's OperationalError, or the transport's own error, when it does not: some may have been sent then.
        The connection is dropped.
        """
        try:
            self._connected().send_all(messages)
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

    def _connected(self) -> Sender:
        if self._sender is None:
            # No heartbeat: an idle sender has nobody to send it, and RabbitMQ would cut the connection.
            # The sender waits for RabbitMQ's confirms itself, for many at once.
            options = {"confirm_publish": False}
            self._link = app.connection_for_write(self._url, heartbeat=0, transport_options=options)
            self._link.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS, reraise_as_library_errors=True)
            self._sender = sender_of(self._link, CONFIRM_SECONDS)
        return self._sender

    def close(self) -> None:
        """Drop the connection, whatever state it is in."""
        link, self._link, self._sender = self._link, None, None
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

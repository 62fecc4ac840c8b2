"""The way to the broker, of whoever sends: one connection, made when first needed and again after it broke."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kombu import Producer
from kombu.exceptions import OperationalError

from core.celery import app


class Bus:
    """Sends messages; a context manager that closes its connection. Not for use from several threads at once."""

    def __init__(self) -> None:
        self._producer: Producer | None = None

    def send(self, task: str, arguments: Sequence[Any], queue: str) -> None:
        """Send one message; returns once the broker has it (RabbitMQ confirms).

        Raises kombu's OperationalError, or the transport's own error, when it does not; the connection is then dropped.
        """
        try:
            app.send_task(task, args=list(arguments), queue=queue, producer=self._connected())
        except BaseException:
            self.close()
            raise

    def _connected(self) -> Producer:
        if self._producer is None:
            # No heartbeat: an idle sender has nobody to send it, and RabbitMQ would cut the connection.
            link = app.connection_for_write(heartbeat=0)
            link.ensure_connection(max_retries=1, timeout=5, reraise_as_library_errors=True)
            self._producer = Producer(link)
        return self._producer

    def close(self) -> None:
        """Drop the connection, whatever state it is in."""
        producer, self._producer = self._producer, None
        if producer is not None and producer.connection is not None:
            producer.connection.collapse()  # type: ignore[attr-defined]  # missing in the stubs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


BROKER_ERRORS: tuple[type[BaseException], ...] = (
    OperationalError,
    OSError,
    *app.connection_for_write().recoverable_connection_errors,
    *app.connection_for_write().recoverable_channel_errors,
)

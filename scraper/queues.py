"""The queues of a broker as somebody meets them who fetches his messages himself: RabbitMQ's and Redis's.

A message is fetched by one question and one answer, so that a broker that is gone, or hangs, shows at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kombu import Connection, Exchange, Queue

from core.broker import AMQP_TRANSPORTS


class UnreadableMessage(Exception):
    """What lay in the queue is no message that Celery's protocol knows. It has left the queue."""


class RawMessage(NamedTuple):
    """A message as it was fetched: its headers, the type of its body, the body, and what gives it back.

    `last` says that the broker told, unasked, that the queue is empty now.
    """

    headers: dict[str, Any]
    content_type: str
    body: str | bytes
    handle: Any
    last: bool = False


class Queues(Protocol):
    """What is fetched is in hand until `settle`, `drop` or `give_back`. All raise the transport's errors.

    `hands_out_again` says that the broker does so by itself with what was in hand when the connection ended.
    """

    hands_out_again: bool

    def get(self, queue: str) -> RawMessage | None:
        """The next message, or None from an empty queue. Raises UnreadableMessage."""

    def settle(self, last: RawMessage) -> None:
        """All that is in hand up to `last` has been dealt with."""

    def drop(self, message: RawMessage) -> None:
        """Nothing can be done with this one."""

    def give_back(self, messages: Sequence[tuple[str, RawMessage]]) -> None:
        """Put all in hand back to where it came from, in the order of fetching, each with its queue."""


def queues_of(link: Connection, names: Sequence[str], answer_seconds: float) -> Queues:
    """By the kind of `link`, which is connected; the queues are made if they are not there yet."""
    for name in names:
        Queue(name, Exchange(name), routing_key=name, channel=link.default_channel).declare()
    return AmqpQueues(link, answer_seconds) if str(link.transport_cls) in AMQP_TRANSPORTS else RedisQueues(link)


class AmqpQueues:
    """Messages stay with the broker, unacknowledged, until they are settled."""

    hands_out_again = True

    def __init__(self, link: Connection, answer_seconds: float) -> None:
        channel: Any = link.default_channel
        self._answer_seconds = answer_seconds
        self._channel = channel
        self._transport = channel.connection.transport

    def get(self, queue: str) -> RawMessage | None:
        """As the protocol says; TimeoutError when there is no answer in time."""
        with self._transport.having_timeout(self._answer_seconds):
            found = self._channel.basic_get(queue)
        if found is None:
            return None
        properties = found.properties
        headers = properties.get("application_headers") or {}
        last = found.delivery_info["message_count"] == 0
        return RawMessage(headers, properties.get("content_type", ""), found.body, found.delivery_tag, last)

    def settle(self, last: RawMessage) -> None:
        """One acknowledgement for all: tags are numbered in the order in which they were handed out."""
        self._channel.basic_ack(last.handle, multiple=True)

    def drop(self, message: RawMessage) -> None:
        """An acknowledgement of this one."""
        self._channel.basic_ack(message.handle)

    def give_back(self, messages: Sequence[tuple[str, RawMessage]]) -> None:
        """Backwards, so that they lie as they lay."""
        for _, message in reversed(messages):
            self._channel.basic_reject(message.handle, requeue=True)


class RedisQueues:
    """Messages leave Redis as they are fetched. kombu's books of what is unacknowledged are not kept: they cost four
    commands a message, and give it back after an hour, when the sweeper has long published the job again."""

    hands_out_again = False

    def __init__(self, link: Connection) -> None:
        channel: Any = link.default_channel
        self._channel = channel
        self._client = channel.client

    def get(self, queue: str) -> RawMessage | None:
        """As the protocol says; the client's own time limit bounds the wait."""
        found = self._client.rpop(queue)
        if found is None:
            return None
        try:
            document = json.loads(found)
            body = self._channel.decode_body(document["body"], document["properties"].get("body_encoding"))
            return RawMessage(document["headers"], document.get("content-type", ""), body, found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableMessage(type(error).__name__) from error

    def settle(self, last: RawMessage) -> None:
        """Nothing is left to be done."""

    def drop(self, message: RawMessage) -> None:
        """Nothing is left to be done."""

    def give_back(self, messages: Sequence[tuple[str, RawMessage]]) -> None:
        """To the end that messages are taken from, backwards."""
        for queue, message in reversed(messages):
            self._client.rpush(queue, message.handle)

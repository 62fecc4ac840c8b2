"""How many messages are sent at once, on each kind of broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import amqp
from amqp.exceptions import MessageNacked
from kombu import Connection, Exchange, Queue

from core.broker import AMQP_TRANSPORTS
from jobs.messages import CONTENT_ENCODING, CONTENT_TYPE, PERSISTENT, Message, redis_item, wire


class Sender(Protocol):
    """Sends over one connection."""

    def send_all(self, messages: Sequence[Message]) -> None:
        """Returns once the broker has them all. Raises the transport's errors; some may have been sent then."""


def sender_of(link: Connection, confirm_seconds: float) -> Sender:
    """By the kind of `link`, which is connected, and on RabbitMQ must not wait for each confirm by itself."""
    if str(link.transport_cls) in AMQP_TRANSPORTS:
        return AmqpSender(link, confirm_seconds)
    return RedisSender(link)


class _Declared:
    """Makes each queue once, if it is not there yet: what is sent to none would be lost in silence."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._names: set[str] = set()

    def ensure(self, messages: Sequence[Message]) -> None:
        for name in {message.queue for message in messages} - self._names:
            Queue(name, Exchange(name), routing_key=name, channel=self._channel).declare()
            self._names.add(name)


class AmqpSender:
    """Sends all, then waits until RabbitMQ has confirmed each: one wait for all of them instead of one for each."""

    def __init__(self, link: Connection, confirm_seconds: float) -> None:
        channel: Any = link.default_channel
        self._link = link
        self._channel = channel
        self._confirm_seconds = confirm_seconds
        self._queues = _Declared(channel)
        self._number = 0  # RabbitMQ counts what comes over a channel in confirm mode, from 1 on
        self._unconfirmed: set[int] = set()
        channel.confirm_select()
        channel.events["basic_ack"].add(self._confirmed)
        channel.events["basic_nack"].add(self._refused)

    def send_all(self, messages: Sequence[Message]) -> None:
        """As the protocol says; TimeoutError when confirms are missing after `confirm_seconds`."""
        self._queues.ensure(messages)
        for message in messages:
            self._number += 1
            self._unconfirmed.add(self._number)
            self._channel.basic_publish(_amqp_message(message), exchange="", routing_key=message.queue)
        deadline = time.monotonic() + self._confirm_seconds
        while self._unconfirmed:
            self._link.drain_events(timeout=max(0.001, deadline - time.monotonic()))

    def _confirmed(self, number: int, multiple: bool) -> None:
        if multiple:
            self._unconfirmed = {each for each in self._unconfirmed if each > number}
        else:
            self._unconfirmed.discard(number)

    def _refused(self, number: int, multiple: bool) -> None:
        raise MessageNacked


class RedisSender:
    """Redis takes a whole list of messages with one command."""

    def __init__(self, link: Connection) -> None:
        channel: Any = link.default_channel
        self._client = channel.client
        self._queues = _Declared(channel)

    def send_all(self, messages: Sequence[Message]) -> None:
        """As the protocol says."""
        self._queues.ensure(messages)
        items: dict[str, list[str]] = {}
        for message in messages:
            items.setdefault(message.queue, []).append(redis_item(message))
        with self._client.pipeline(transaction=False) as pipeline:
            for queue, batch in items.items():
                pipeline.lpush(queue, *batch)
            pipeline.execute()


def _amqp_message(message: Message) -> amqp.Message:
    name, headers, body = wire(message)
    return amqp.Message(
        body,
        content_type=CONTENT_TYPE,
        content_encoding=CONTENT_ENCODING,
        application_headers=headers,
        correlation_id=name,
        delivery_mode=PERSISTENT,
    )

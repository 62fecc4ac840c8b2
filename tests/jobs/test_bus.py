"""The way to the broker breaks and is made again, on each kind of broker."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import kombu
import pytest
from django.conf import settings

from jobs.bus import BROKER_ERRORS, Bus

QUEUE = "test.bus"


class Road:
    """A way to the broker that can be cut: forwards from a port of its own, closes all of it, and opens it again."""

    def __init__(self, broker: tuple[str, int]) -> None:
        self.broker = broker
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.links: list[socket.socket] = []
        self._serve()

    def cut(self) -> None:
        """Nobody gets through and nobody is let in."""
        for link in (self.server, *self.links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()
        self.links.clear()

    def mend(self) -> None:
        self.server = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self.server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, far = server.accept()[0], socket.create_connection(self.broker)
                self.links += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()


@pytest.fixture(params=["redis", pytest.param("amqp", marks=pytest.mark.amqp)])
def broker_url(request: pytest.FixtureRequest) -> str:
    return str(settings.CELERY_BROKER_URL if request.param == "redis" else os.environ["TEST_AMQP_URL"])


@pytest.fixture
def queue(broker_url: str) -> Iterator[kombu.Queue]:
    """The queue at its end, empty."""
    with kombu.Connection(broker_url) as link:
        queue = kombu.Queue(QUEUE, kombu.Exchange(QUEUE), routing_key=QUEUE, channel=link.default_channel)
        queue.declare()
        queue.purge()
        yield queue
        queue.delete()


def received(queue: kombu.Queue) -> list[object]:
    messages = iter(lambda: queue.get(no_ack=True), None)
    return [message.payload[0] for message in messages]


def test_a_send_fails_while_the_way_is_cut_and_works_once_it_is_mended(broker_url: str, queue: kombu.Queue) -> None:
    parts = urlsplit(broker_url)
    default_port = 5672 if parts.scheme == "amqp" else 6379
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    with Road((parts.hostname or "127.0.0.1", parts.port or default_port)) as road:
        bus = Bus(urlunsplit(parts._replace(netloc=f"{login}127.0.0.1:{road.port}")))
        bus.send("test.task", (1,), QUEUE)
        road.cut()
        for _ in range(2):
            with pytest.raises(BROKER_ERRORS):
                bus.send("test.task", (2,), QUEUE)
        road.mend()
        bus.send("test.task", (3,), QUEUE)
        bus.close()

    assert received(queue) == [[1], [3]]


def test_a_queue_tells_how_much_lies_in_it(broker_url: str, queue: kombu.Queue) -> None:
    with Bus(broker_url) as bus:
        assert bus.holds([QUEUE, "test.bus.that.is.not.there"]) == 0
        for number in range(3):
            bus.send("test.task", (number,), QUEUE)
        deadline = time.monotonic() + 5  # without a confirm a message may still be on its way
        while bus.holds([QUEUE, "test.bus.that.is.not.there"]) != 3:
            assert time.monotonic() < deadline

"""The worker's way to its messages: it asks for as many as it has room for, by the weights of the priorities.

A consumer that the broker pushes to is given its queues 1 : 1 : 1, and holds messages that others have room for
(docs/adr/0010). Here nothing is held but what is about to be claimed.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from typing import Final

from kombu import Connection

from core.celery import app
from jobs.bus import CLOSE_SECONDS, CONNECT_SECONDS
from jobs.fairness import PRIORITY_WEIGHTS, WeightedRoundRobin
from jobs.routing import EXECUTE, QUEUE_OF_PRIORITY
from jobs.transitions import ClaimTicket
from scraper.queues import Queues, RawMessage, UnreadableMessage, queues_of

ANSWER_SECONDS: Final = 10.0  # a broker that takes a question and says nothing would hold the worker for ever
MAX_CLAIM_NO: Final = 2**31 - 1  # what the column holds; a larger one would fail all claims of its group

logger = logging.getLogger(__name__)


class MalformedMessage(Exception):
    """Not a job's message; whoever sent it, nothing can be done with it."""


class Puller:
    """Pulls from `queues`, the names of job queues; for one thread at a time.

    What was pulled is in hand until `settle` or `give_back`. The connection is made when first needed and again after
    it broke; `url` names another broker than BROKER_URL. Raises ValueError for a queue that is no job queue.
    """

    def __init__(
        self, queues: Sequence[str], url: str | None = None, *, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._weights = {name: PRIORITY_WEIGHTS[p] for p, name in QUEUE_OF_PRIORITY.items() if name in queues}
        if not set(queues) <= set(self._weights):
            raise ValueError("not every one is a job queue")
        self._order = WeightedRoundRobin(self._weights)
        self._url = url
        self._answer_seconds = answer_seconds
        self._link: Connection | None = None
        self._queues: Queues | None = None
        self._in_hand: list[tuple[str, RawMessage]] = []

    def pull(self, at_most: int) -> list[ClaimTicket]:
        """Up to `at_most` tickets; fewer when all queues are empty or the broker went away midway.

        Raises whatever the transport raises when there is nothing in hand, TimeoutError and such when the broker does
        not answer for `answer_seconds`; the connection is then dropped.
        """
        tickets: list[ClaimTicket] = []
        try:
            self._fill(self._connected(), tickets, at_most)
        except Exception as error:
            self._drop()
            if not tickets:
                raise
            # Redis has let go of these; RabbitMQ will hand them out again, and of two claims one counts.
            logger.warning("the broker went away while it was asked: %s", type(error).__name__)
        return tickets

    def settle(self) -> None:
        """All in hand were dealt with. A broker that cannot be told hands them out again; their claims fail."""
        messages, self._in_hand = self._in_hand, []
        if messages and self._queues is not None:
            try:
                self._queues.settle(messages[-1][1])
            except Exception as error:  # noqa: BLE001  each transport has errors of its own
                logger.warning("messages not acknowledged: %s", type(error).__name__)
                self._drop()

    def give_back(self) -> None:
        """Return all in hand to their queues. What cannot be returned, the broker or the sweeper brings back."""
        messages, self._in_hand = self._in_hand, []
        if messages:
            try:
                self._connected().give_back(messages)
            except Exception as error:  # noqa: BLE001  each transport has errors of its own
                logger.warning("%s messages not given back: %s", len(messages), type(error).__name__)
                self._drop()

    def close(self) -> None:
        """Give back what is in hand and drop the connection."""
        self.give_back()
        self._drop()

    def _fill(self, queues: Queues, tickets: list[ClaimTicket], at_most: int) -> None:
        ready = set(self._weights)
        while ready and len(tickets) < at_most:
            name = self._order.peek(ready)
            try:
                message = queues.get(name)
                if message is None:
                    ready.discard(name)
                    continue
            except UnreadableMessage as error:
                logger.error("a message in %s is no job's and is dropped: %s", name, error)
                continue
            try:
                tickets.append(ticket_of(message))
            except MalformedMessage as error:
                logger.error("a message in %s is no job's and is dropped: %s", name, error)
                queues.drop(message)  # given back, it would be met again for ever
            else:
                self._order.take(ready, name)
                self._in_hand.append((name, message))
                if message.last:
                    ready.discard(name)

    def _connected(self) -> Queues:
        if self._queues is None:
            # No heartbeat: the thread that would send it sleeps while there is no room. A dead peer shows at a pull.
            options = {"socket_timeout": self._answer_seconds}  # of Redis; RabbitMQ's knows no such thing
            self._link = app.connection_for_read(self._url, heartbeat=0, transport_options=options)
            self._link.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS, reraise_as_library_errors=True)
            self._queues = queues_of(self._link, list(self._weights), self._answer_seconds)
        return self._queues

    def _drop(self) -> None:
        if self._queues is not None and self._queues.hands_out_again:
            self._in_hand.clear()
        link, self._link, self._queues = self._link, None, None
        if link is not None:
            link.collect(CLOSE_SECONDS)


def ticket_of(message: RawMessage) -> ClaimTicket:
    """What the message asks for. Raises MalformedMessage, in words that hold nothing of the message."""
    if message.headers.get("task") != EXECUTE or message.content_type != "application/json":
        raise MalformedMessage("it names another task")
    try:
        (job_id, claim_no, host), *_ = json.loads(message.body)
        if not (type(claim_no) is int and 0 <= claim_no <= MAX_CLAIM_NO and isinstance(host, str)):
            raise MalformedMessage("its arguments are not a job's")
        return ClaimTicket(uuid.UUID(job_id), claim_no, host)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedMessage(f"its body cannot be read: {type(error).__name__}") from error

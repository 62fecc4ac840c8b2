"""What travels over the bus: messages of Celery's protocol 2, made without Celery's own way of making them, which costs
many times what sending does. https://docs.celeryq.dev/en/stable/internals/protocol.html"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

CONTENT_TYPE: Final = "application/json"
CONTENT_ENCODING: Final = "utf-8"
PERSISTENT: Final = 2  # delivery_mode: RabbitMQ keeps it on disk


class Message(NamedTuple):
    """A task by its name, its arguments (anything that JSON can hold) and the queue where it is to lie."""

    task: str
    arguments: Sequence[Any]
    queue: str


class Wire(NamedTuple):
    """A message as it is sent."""

    id: str
    headers: dict[str, Any]
    body: str


def wire(message: Message) -> Wire:
    """The headers that a worker cannot do without, and the body: arguments, no keywords, nothing embedded."""
    name = str(uuid.uuid4())
    headers = {"lang": "py", "task": message.task, "id": name, "root_id": name, "ignore_result": True}
    return Wire(name, headers, json.dumps([message.arguments, {}, {}]))


def redis_item(message: Message) -> str:
    """The message as kombu lays it into Redis's lists."""
    name, headers, body = wire(message)
    return json.dumps(
        {
            "body": base64.b64encode(body.encode()).decode(),
            "content-encoding": CONTENT_ENCODING,
            "content-type": CONTENT_TYPE,
            "headers": headers,
            "properties": {
                "correlation_id": name,
                "delivery_mode": PERSISTENT,
                "delivery_info": {"exchange": "", "routing_key": message.queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": name,
            },
        }
    )

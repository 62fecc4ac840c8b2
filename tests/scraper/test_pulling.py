"""What a worker pulls from a real broker of each kind, in which order, and what becomes of what it has in hand."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import kombu
import pytest
from amqp.exceptions import NotFound
from django.conf import settings

from jobs.bus import Bus
from jobs.routing import EVENTS_QUEUE, EXECUTE, QUEUE_OF_PRIORITY
from jobs.states import Priority
from scraper.pulling import Puller
from tests.faults.proxy import Proxy

HIGH, NORMAL, LOW = (QUEUE_OF_PRIORITY[priority] for priority in (Priority.HIGH, Priority.NORMAL, Priority.LOW))
ALL = (HIGH, NORMAL, LOW)


@pytest.fixture(params=["redis", pytest.param("amqp", marks=pytest.mark.amqp)])
def broker_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker of each kind whose job queues are empty, before and after."""
    url = str(settings.CELERY_BROKER_URL if request.param == "redis" else os.environ["TEST_AMQP_URL"])
    _purge(url)
    yield url
    _purge(url)


@pytest.fixture
def puller(broker_url: str) -> Iterator[Puller]:
    puller = Puller(ALL, broker_url)
    yield puller
    puller.close()


def _purge(url: str) -> None:
    with kombu.Connection(url) as link:
        for name in ALL:
            queue = kombu.Queue(name, kombu.Exchange(name), routing_key=name, channel=link.default_channel)
            queue.declare()
            queue.purge()


def send(url: str, **counts: int) -> None:
    """So many messages to each priority; the host tells which it was."""
    with Bus(url) as bus:
        for name in ALL:
            for _ in range(counts.get(name.removeprefix("jobs."), 0)):
                bus.send(EXECUTE, (str(uuid.uuid4()), 0, name), name)


def pull_all(puller: Puller, at_once: int) -> list[str]:
    """The queues in the order in which they were pulled from, each round settled."""
    names: list[str] = []
    while tickets := puller.pull(at_once):
        names += [ticket.host for ticket in tickets]
        puller.settle()
    return names


def held(url: str) -> int:
    with Bus(url) as bus:
        return bus.holds(ALL)


@pytest.mark.parametrize("at_once", [1, 4, 10])
def test_full_queues_are_pulled_from_by_their_weights(broker_url: str, puller: Puller, at_once: int) -> None:
    send(broker_url, high=120, normal=60, low=20)
    names = pull_all(puller, at_once)
    for start in range(101):
        of_a_hundred = Counter(names[start : start + 100])
        assert 59 <= of_a_hundred[HIGH] <= 61
        assert 29 <= of_a_hundred[NORMAL] <= 31
        assert 9 <= of_a_hundred[LOW] <= 11


@pytest.mark.parametrize("at_once", [1, 10])
def test_an_empty_queues_share_goes_to_the_others(broker_url: str, puller: Puller, at_once: int) -> None:
    send(broker_url, normal=90, low=30)
    names = pull_all(puller, at_once)
    for start in range(0, 100, 20):
        assert 14 <= names[start : start + 20].count(NORMAL) <= 16
    send(broker_url, low=5)
    assert pull_all(puller, at_once) == [LOW] * 5


def test_a_pool_for_one_priority_takes_nothing_else(broker_url: str) -> None:
    send(broker_url, high=2, low=2)
    puller = Puller([LOW], broker_url)
    assert [ticket.host for ticket in puller.pull(10)] == [LOW, LOW]
    puller.settle()
    puller.close()
    assert held(broker_url) == 2


def test_nobody_else_is_given_what_is_in_hand_until_it_goes_back(broker_url: str, puller: Puller) -> None:
    send(broker_url, normal=3)
    first = puller.pull(2)
    other = Puller(ALL, broker_url)
    assert len(other.pull(10)) == 1
    puller.give_back()
    again = other.pull(10)
    assert [ticket.job_id for ticket in again] == [ticket.job_id for ticket in first], "they lie as they lay"
    other.settle()
    other.close()
    assert held(broker_url) == 0


def test_who_leaves_gives_back_what_is_in_hand_and_nothing_that_is_settled(broker_url: str) -> None:
    send(broker_url, normal=5)
    leaving = Puller(ALL, broker_url)
    leaving.pull(2)
    leaving.settle()
    leaving.pull(2)
    leaving.close()
    assert held(broker_url) == 3


MALFORMED: dict[str, dict[str, Any]] = {
    "another task": {"headers": {"task": "celery.backend_cleanup"}},
    "no task": {"headers": {}},
    "no JSON": {"body": "[[", "headers": {"task": EXECUTE}},
    "not a list": {"body": "7", "headers": {"task": EXECUTE}},
    "deep": {"body": "[" * 100_000, "headers": {"task": EXECUTE}},
    "too few arguments": {"body": json.dumps([["x"], {}, {}]), "headers": {"task": EXECUTE}},
    "no id": {"body": json.dumps([["x", 0, "h"], {}, {}]), "headers": {"task": EXECUTE}},
    "an id that is no string": {"body": json.dumps([[7, 0, "h"], {}, {}]), "headers": {"task": EXECUTE}},
    "a claim number too large": {
        "body": json.dumps([[str(uuid.uuid4()), 2**40, "h"], {}, {}]),
        "headers": {"task": EXECUTE},
    },
    "a claim number that is none": {
        "body": json.dumps([[str(uuid.uuid4()), "0", "h"], {}, {}]),
        "headers": {"task": EXECUTE},
    },
    "bytes": {
        "body": b"\x80\x04\xff",
        "content_type": "application/x-python-serialize",
        "content_encoding": "binary",
        "headers": {"task": EXECUTE},
    },
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_jobs_message_is_dropped_and_blocks_nothing(
    broker_url: str, puller: Puller, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"body": "[]", "content_type": "application/json", "content_encoding": "utf-8"} | MALFORMED[case]
    with kombu.Connection(broker_url) as link:
        kombu.Producer(link).publish(exchange=HIGH, routing_key=HIGH, **message)
    send(broker_url, high=1)
    assert len(puller.pull(10)) == 1
    assert "is no job's and is dropped" in caplog.text
    puller.close()  # gives back what is in hand: the good one alone
    assert held(broker_url) == 1


@pytest.mark.parametrize("rubbish", [b"", b"{", b"[]", b"7", b'{"body": 1}', b'{"body": "", "properties": 1}'])
def test_rubbish_in_redis_is_dropped(rubbish: bytes, caplog: pytest.LogCaptureFixture) -> None:
    url = str(settings.CELERY_BROKER_URL)
    _purge(url)
    puller = Puller(ALL, url)
    with kombu.Connection(url) as link:
        channel: Any = link.default_channel
        channel.client.lpush(HIGH, rubbish)
    assert puller.pull(1) == []
    assert "is no job's and is dropped" in caplog.text
    assert held(url) == 0
    puller.close()


def test_a_queue_that_vanishes_is_made_anew(broker_url: str, puller: Puller) -> None:
    puller.pull(1)
    with kombu.Connection(broker_url) as link:
        kombu.Queue(NORMAL, channel=link.default_channel).delete()
    with suppress(NotFound):  # RabbitMQ says so once
        assert puller.pull(10) == []
    assert puller.pull(10) == []
    send(broker_url, normal=1)
    assert len(puller.pull(10)) == 1
    puller.settle()


def test_pulling_goes_on_when_the_broker_is_back(broker_url: str) -> None:
    with Proxy.to(broker_url) as road:
        puller = Puller(ALL, road.instead_of(broker_url))
        send(broker_url, normal=3)
        assert len(puller.pull(1)) == 1
        road.cut()
        puller.settle()
        for _ in range(2):
            with pytest.raises(Exception, match=r".*"):
                puller.pull(10)
        road.mend()
        left = puller.pull(10)
        assert 2 <= len(left) <= 3, "RabbitMQ could not be told that the first was settled"
        puller.settle()
        puller.close()
    assert held(broker_url) == 0


def test_a_broker_that_says_nothing_holds_nobody_for_ever(broker_url: str) -> None:
    """Its connections stay, and no answer comes: without a time limit the worker would live and do nothing."""
    with Proxy.to(broker_url) as road:
        puller = Puller(ALL, road.instead_of(broker_url), answer_seconds=0.5)
        assert puller.pull(1) == []
        send(broker_url, normal=1)
        road.freeze()
        with pytest.raises(Exception, match=r"(?i)timed? ?out"):
            puller.pull(1)
        road.thaw()
        assert len(puller.pull(10)) == 1
        puller.settle()
        puller.close()
    assert held(broker_url) == 0


def test_the_order_of_a_queue_is_kept(broker_url: str, puller: Puller) -> None:
    with Bus(broker_url) as bus:
        for number in range(12):
            bus.send(EXECUTE, (str(uuid.UUID(int=number)), 0, ""), NORMAL)
    ids = [ticket.job_id.int for _ in range(3) for ticket in puller.pull(4)]
    assert all(one < other for one, other in pairwise(ids))
    puller.settle()


def test_other_queues_are_left_alone(broker_url: str) -> None:
    with pytest.raises(ValueError, match="job queue"):
        Puller([EVENTS_QUEUE], broker_url)

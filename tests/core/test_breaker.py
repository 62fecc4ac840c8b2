"""A part that does not answer is asked by nobody but the breaker until it does."""

from __future__ import annotations

import threading
import time

import pytest

from core.breaker import Breaker


class Part:
    """Answers or not, and notes who asked."""

    def __init__(self) -> None:
        self.answers = False
        self.askers: list[str] = []

    def ask(self) -> None:
        self.askers.append(threading.current_thread().name)
        if not self.answers:
            raise OSError("nobody there")


def wait_until_closed(breaker: Breaker) -> None:
    deadline = time.monotonic() + 30
    while not breaker.closed:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_closes_by_itself_when_the_part_answers_again() -> None:
    part = Part()
    breaker = Breaker("a part", part.ask, (OSError,))
    seen = [breaker.closed]
    breaker.trip(OSError("nobody there"))
    seen.append(breaker.closed)
    time.sleep(0.25)
    seen.append(breaker.closed)
    assert (seen, len(part.askers) > 0) == ([True, False, False], True)
    part.answers = True
    wait_until_closed(breaker)
    assert set(part.askers) == {"breaker a part"}


def test_however_many_trip_it_one_thread_asks() -> None:
    part = Part()
    breaker = Breaker("a crowd's part", part.ask, (OSError,))
    threads = [threading.Thread(target=breaker.trip, args=[OSError("nobody there")]) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [thread.name for thread in threading.enumerate()].count("breaker a crowd's part") == 1
    part.answers = True
    wait_until_closed(breaker)


def test_it_can_trip_again() -> None:
    part = Part()
    part.answers = True
    breaker = Breaker("a part", part.ask, (OSError,))
    for _ in range(2):
        breaker.trip(OSError("nobody there"))
        wait_until_closed(breaker)
    assert len(part.askers) == 2


def test_it_tells_of_the_outage_and_of_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    part = Part()
    breaker = Breaker("a part", part.ask, (OSError,))
    breaker.trip(OSError("nobody there"))
    breaker.trip(OSError("nobody there either"))
    part.answers = True
    wait_until_closed(breaker)
    time.sleep(0.05)
    told = [record.getMessage() for record in caplog.records if record.name == "core.breaker"]
    assert told == ["a part does not answer, going on without it: OSError: nobody there", "a part answers again"]

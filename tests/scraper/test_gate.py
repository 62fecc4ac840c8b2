"""Each hop of an attempt asks the gate before it calls the hop's host, and tells it what came back."""

from __future__ import annotations

import asyncio

import pytest

from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.gates import NotNow
from scraper.outcomes import FetchOutcome, FetchRequest
from tests.scraper.limit_target import Answer, LimitTarget


class Notebook:
    """A gate that writes down what it hears, and refuses a host from a certain visit on."""

    def __init__(self, refused: str = "", *, wait: float = 0.0) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.within: list[float] = []
        self._refused = refused
        self._wait = wait

    async def enter(self, host: str, *, within: float) -> None:
        self.heard.append(("enter", host))
        self.within.append(within)
        if host == self._refused:
            raise NotNow("host_blocked", 30.0)
        await asyncio.sleep(self._wait)

    def answered(self, status: int, retry_after: str | None) -> None:
        self.heard.append(("answered", status, retry_after))

    def slow_down(self, host: str, seconds: float) -> None:
        self.heard.append(("slow_down", host, seconds))


def fetch(url: str, gate: Notebook, *hosts: str, method: str = "GET", deadline: float = 5.0) -> FetchOutcome:
    async def run() -> FetchOutcome:
        fetcher = Fetcher(egress=EgressGuard(hosts), user_agent="test", max_connections=1)
        return await fetcher.fetch(FetchRequest(url, method, (), b"", deadline, 1000, True), gate)

    return asyncio.run(run())


def to(url: str, status: int = 302) -> Answer:
    return status, {"Location": url}


def test_every_hop_is_asked_for_and_every_answer_is_told() -> None:
    with LimitTarget() as last, LimitTarget() as first:
        last.answer = lambda path: (503, {"Retry-After": "7"})
        first.answer = lambda path: to(f"{first.url}/b") if path == "/a" else to(f"{last.url}/c")
        gate = Notebook()
        outcome = fetch(f"{first.url}/a", gate, first.host, last.host)
    assert outcome.error_code == "http_503"
    assert gate.heard == [
        ("enter", first.host),
        ("answered", 302, None),
        ("enter", first.host),
        ("answered", 302, None),
        ("enter", last.host),
        ("answered", 503, "7"),
    ]


def test_a_refused_hop_sends_nothing_and_is_no_failure() -> None:
    with LimitTarget() as last, LimitTarget() as first:
        first.answer = lambda path: to(f"{last.url}/c")
        outcome = fetch(f"{first.url}/a", Notebook(last.host), first.host, last.host)
    assert last.log == []
    assert (outcome.error_code, outcome.body) == (None, None)
    assert outcome.not_now is not None
    assert (outcome.not_now.reason, outcome.not_now.seconds) == ("host_blocked", 30.0)
    assert outcome.request_sent


def test_a_refused_first_request_was_not_sent() -> None:
    with LimitTarget() as first:
        outcome = fetch(f"{first.url}/a", Notebook(first.host), first.host)
    assert first.log == []
    assert outcome.not_now is not None
    assert not outcome.request_sent


@pytest.mark.parametrize(("method", "longest"), [("GET", 10.0), ("POST", 60.0)])
def test_a_hop_waits_within_the_deadline_and_longer_only_if_the_attempt_cannot_be_repeated(
    method: str, longest: float
) -> None:
    with LimitTarget() as last, LimitTarget() as first:
        first.answer = lambda path: to(f"{last.url}/c", 307)
        gate = Notebook(wait=0.2)
        fetch(f"{first.url}/a", gate, first.host, last.host, method=method, deadline=60.0)
        short = Notebook()
        fetch(f"{first.url}/a", short, first.host, last.host, method=method, deadline=2.0)
    assert gate.within[0] == 10.0
    assert longest - 5 < gate.within[1] <= longest - (0.2 if method == "POST" else 0)
    assert all(1 < seconds < 2 for seconds in short.within)

"""From what an attempt met at a raw server to where its job goes: who may try again."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from jobs.retries import Backoff
from jobs.states import State
from jobs.transitions import ClaimedJob, Ending
from scraper import endings
from scraper.outcomes import FetchOutcome
from tests.scraper.fetch_kin import redirect
from tests.scraper.raw_server import RawServer
from tests.scraper.test_fetcher import fetch, free_port, order

NOW = datetime(2026, 11, 29, tzinfo=UTC)
REPEATABLE = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]
UNSAFE = ["POST", "PATCH"]


def job(method: str, **values: Any) -> ClaimedJob:
    """The first of five attempts."""
    fields: dict[str, Any] = {
        "job_id": uuid.UUID(int=1),
        "claim_no": 1,
        "tenant_id": uuid.UUID(int=2),
        "attempts": 1,
        "max_attempts": 5,
        "url": "http://example.com/",
        "method": method,
        "headers": {},
        "body": b"",
        "deadline_seconds": 5,
        "max_bytes": 1000,
        "retry_unsafe": False,
        "follow_redirects": True,
    }
    return ClaimedJob(**(fields | values))


def ended(outcome: FetchOutcome, method: str, **values: Any) -> Ending:
    return endings.failed(job(method, **values), outcome, now=NOW, draw=0.5, backoff=Backoff(1.0, 300.0))


def attempt(method: str, server: RawServer, **more: Any) -> FetchOutcome:
    body = b"payload" if method in ("PUT", "POST", "PATCH") else b""
    return fetch(order(server.url, method, body=body, **more), [server.allowed])


AFTER_A_BYTE: dict[str, list[dict[str, Any]]] = {
    "reset": [{"reset": True}],
    "closed": [],
    "silent": [{"sleep": 3}],
    "half a head": [{"send": "HTTP/1.1 200 OK\r\nConte"}],
    "half a body": [{"send": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"}],
    "503": [{"send": "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"}],
    "429": [{"send": "HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n"}],
}


@contextmanager
def unreachable(kind: str) -> Iterator[tuple[str, list[str]]]:
    """A URL where a connection fails before a byte of the request is sent, and what is allowed."""
    if kind == "refused":
        port = free_port()
        yield f"http://127.0.0.1:{port}/", [f"127.0.0.1:{port}"]
        return
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            scheme = {"no tls": "https", "never accepted": "http"}[kind]
            yield f"{scheme}://127.0.0.1:{port}/", [f"127.0.0.1:{port}"]


@pytest.mark.parametrize("method", [*REPEATABLE, *UNSAFE])
@pytest.mark.parametrize("kind", ["refused", "never accepted", "no tls"])
def test_before_a_byte_was_sent_every_method_is_tried_again(kind: str, method: str) -> None:
    with unreachable(kind) as (url, allow):
        outcome = fetch(order(url, method), allow, connect_seconds=0.1)
    ending = ended(outcome, method)
    assert (ending.state, ending.delay_seconds) == (State.QUEUED, 0.5)
    assert ending.error_code in ("connection_refused", "connect_timeout", "tls_handshake_failed")


@pytest.mark.parametrize("kind", sorted(AFTER_A_BYTE))
@pytest.mark.parametrize("method", [*REPEATABLE, *UNSAFE])
def test_after_a_byte_was_sent_only_what_can_be_repeated_is(method: str, kind: str) -> None:
    with RawServer(AFTER_A_BYTE[kind]) as server:
        outcome = attempt(method, server, deadline_seconds=0.5)
    if outcome.error_code is None:  # HEAD has no body that could be cut off
        assert (method, kind) == ("HEAD", "half a body")
        return
    ending = ended(outcome, method)
    if method in REPEATABLE:
        assert (ending.state, ending.error_code) == (State.QUEUED, outcome.error_code)
    else:
        assert (ending.state, ending.error_code) == (State.FAILED, "unsafe_to_retry")
        assert str(outcome.error_code) in ending.error_detail
    assert ended(outcome, method, retry_unsafe=True).state is State.QUEUED


@pytest.mark.parametrize("method", UNSAFE)
def test_a_request_that_reached_the_first_hop_counts_as_sent(method: str) -> None:
    port = free_port()
    with RawServer([{"send": redirect(f"http://127.0.0.1:{port}/", "307 T")}]) as server:
        outcome = fetch(order(server.url, method, body=b"x"), [server.allowed, f"127.0.0.1:{port}"])
    assert outcome.error_code == "connection_refused"
    assert ended(outcome, method).error_code == "unsafe_to_retry"


@pytest.mark.parametrize("method", [*REPEATABLE, *UNSAFE])
def test_the_last_attempt_and_a_permanent_error_are_told_by_their_own_code(method: str) -> None:
    with RawServer(AFTER_A_BYTE["503"]) as server:
        last = ended(attempt(method, server), method, attempts=5)
        server.steps = [{"send": "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n"}]
        gone = ended(attempt(method, server), method)
    assert (last.state, last.error_code) == (State.FAILED, "http_503")
    assert (gone.state, gone.error_code) == (State.FAILED, "http_404")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_fault_of_our_own_is_marked_as_one(method: str) -> None:
    ours = ended(FetchOutcome(error_code="internal_fetch_error", request_sent=True), method)
    theirs = ended(FetchOutcome(error_code="http_503", request_sent=True), method)
    assert (ours.internal_error, theirs.internal_error) == (True, False)


def test_what_was_seen_goes_into_the_ending_and_can_be_left_out() -> None:
    answer = (
        "HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 4\r\n\r\nbusy"
    )
    with RawServer([{"send": answer}]) as server:
        ending = ended(attempt("GET", server), "GET")
    assert (ending.delay_seconds, ending.http_status, ending.body_snippet) == (7.0, 503, "busy")
    assert ending.evidence["connection"]["remote_address"] == "127.0.0.1"
    assert ending.evidence["charset"]["header"] == "utf-8"
    without = endings.without_evidence(ending)
    assert (without.evidence, without.response_headers, without.body_snippet) == ({}, [], "")
    assert (without.state, without.error_code) == (ending.state, ending.error_code)

"""Every handed case of tests/cases/fetch_cases.json, and its kin, against a raw TCP server."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchOutcome, FetchRequest
from tests.scraper.fetch_kin import KIN
from tests.scraper.raw_server import RawServer

HANDED = json.loads((Path(__file__).parent.parent / "cases" / "fetch_cases.json").read_text())

TEMPORARY = {
    *("connect_timeout", "read_timeout", "deadline_exceeded", "connection_refused", "connection_reset"),
    *("incomplete_body", "dns_error", "server_disconnected", "tls_handshake_failed", "internal_fetch_error"),
    *(f"http_{status}" for status in (408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529)),
}


def fetch(server: RawServer, case: Mapping[str, Any]) -> FetchOutcome:
    request = FetchRequest(
        url=server.url,
        method=case.get("method", "GET"),
        headers=tuple(map(tuple, case.get("headers", ()))),
        body=case.get("request_body", "").encode(),
        deadline_seconds=case.get("deadline_seconds", 10),
        max_bytes=case.get("max_bytes", 50 * 1024 * 1024),
        follow_redirects=case.get("follow_redirects", True),
    )
    return asyncio.run(run(request, EgressGuard([server.allowed])))


async def run(request: FetchRequest, guard: EgressGuard) -> FetchOutcome:
    fetcher = Fetcher(egress=guard, user_agent="test", max_connections=4)
    try:
        return await fetcher.fetch(request)
    finally:
        await fetcher.aclose()


@pytest.mark.parametrize("case", HANDED + KIN, ids=lambda case: case["id"])
def test_an_odd_answer_becomes_what_it_must(case: dict[str, Any]) -> None:
    started = time.monotonic()
    with RawServer(case["steps"]) as server:
        outcome = fetch(server, case)
    took = time.monotonic() - started
    expected = case["expect"]
    assert took < case.get("within", 10)
    if expected["outcome"] == "succeeded":
        check_success(outcome, expected)
    else:
        check_failure(outcome, expected)
    json.dumps([outcome.headers, outcome.body_snippet, outcome.error_detail]).encode()


def check_success(outcome: FetchOutcome, expected: Mapping[str, Any]) -> None:
    assert (outcome.error_code, outcome.error_detail) == (None, "")
    assert outcome.body is not None
    with outcome.body as body:
        stored = body.file.read()
    assert body.size == len(stored)
    if "body" in expected:
        assert stored.decode("latin-1") == expected["body"]
    if "body_has" in expected:
        assert expected["body_has"] in stored.decode("latin-1")


def check_failure(outcome: FetchOutcome, expected: Mapping[str, Any]) -> None:
    assert outcome.error_code in expected["codes"]
    assert outcome.error_code != "internal_fetch_error"
    assert outcome.error_detail
    assert outcome.body is None
    assert ("temporary" if outcome.error_code in TEMPORARY else "permanent") in expected["outcome"]

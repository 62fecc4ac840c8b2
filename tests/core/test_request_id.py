"""One id in the answer, the problem and the log."""

from __future__ import annotations

import logging

import pytest
from django.test import Client

from core.request_id import RequestIdFilter, current_request_id


@pytest.mark.parametrize("offered", ["a", "01a22852-766d-744c-9900-0a4315e984d3", "A.b_c-9", "x" * 128])
def test_an_id_that_is_offered_is_used(client: Client, offered: str) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": offered})["X-Request-Id"] == offered


@pytest.mark.parametrize("offered", ["", "x" * 129, "a b", "a\nb", "caf\u00e9", "${jndi}", "a\0"])
def test_an_id_that_could_forge_a_log_line_is_replaced(client: Client, offered: str) -> None:
    used = client.get("/healthz", headers={"X-Request-Id": offered})["X-Request-Id"]
    assert used != offered
    assert len(used) == 36


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/api/v1/jobs", "/static/nowhere.js"])
def test_every_answer_has_an_id(client: Client, path: str) -> None:
    assert client.get(path)["X-Request-Id"]


def test_a_log_record_carries_the_id() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "m", (), None)
    assert RequestIdFilter().filter(record)
    assert record.__dict__["request_id"] == current_request_id() == "-"

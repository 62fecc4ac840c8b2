"""The web role needs its database; everything else may be gone."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.models import Job
from tenants.models import ApiKey, Tenant
from tests.core.web_role import running_web_role
from tests.integration.roles import database_url

PATIENT_SECONDS = 2.0  # far more than an answer takes, far less than any client's patience with a dead server


@pytest.fixture(params=["refuses", "hangs"])
def dead_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """host:port of a server that refuses connections, or takes them and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if request.param == "hangs":
            server.listen(64)
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def web_alone(transactional_db: None, dead_address: str, tmp_path: Path) -> Iterator[str]:
    """The address of a web role whose broker, cache and storage are all dead."""
    dead = {
        "REDIS_URL": f"redis://{dead_address}/0",
        "BROKER_URL": f"redis://{dead_address}/1",
        "S3_ENDPOINT_URL": f"http://{dead_address}",
    }
    with running_web_role(database_url(), tmp_path / "web.log", WEB_WORKERS="1", **dead) as web:
        yield f"http://127.0.0.1:{web.port}"


def ask(url: str, key: str = "", document: object = None) -> tuple[int, Any]:
    """Status and JSON body of the answer; the request takes at most PATIENT_SECONDS."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = None if document is None else json.dumps(document).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=PATIENT_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_jobs_are_accepted_and_read_while_broker_cache_and_storage_are_dead(web_alone: str) -> None:
    key = ApiKey.issue(Tenant.objects.create(name="acme"))[1]
    started = time.monotonic()
    accepted = [ask(f"{web_alone}/api/v1/jobs", key, {"url": f"https://example.com/{n}"}) for n in range(10)]
    took = time.monotonic() - started

    assert [status for status, _ in accepted] == [202] * 10
    assert Job.objects.count() == 10
    assert took < 10 * 0.2, "the answers waited for a part that is dead"
    status, job = ask(f"{web_alone}{accepted[0][1]['links']['self']}", key)
    assert (status, job["status"]) == (200, "queued")
    status, page = ask(f"{web_alone}/api/v1/jobs?limit=3", key)
    assert (status, len(page["items"])) == (200, 3)

    status, report = ask(f"{web_alone}/readyz")
    assert (status, report["status"]) == (200, "degraded")
    assert {name for name, found in report["checks"].items() if found["status"] != "ok"} == {
        "broker",
        "cache",
        "storage",
    }

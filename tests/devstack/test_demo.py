"""The demo tells jobs that ended as they must from those that did not."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from devstack.api import Api, ApiFailed, Refused
from devstack.demo import REFUSED, DemoJob, Expectation, conclude, result_table, save, site_jobs, submit, url_jobs
from devstack.demo_egress import hint
from devstack.demo_site import BIG_BYTES, DemoSite, pattern

SUCCEEDED: dict[str, Any] = {
    "status": "succeeded",
    "attempts": 1,
    "created_at": "2026-01-01T00:00:00Z",
    "last_error": None,
    "result": {"bytes": 107, "http_status": 200, "final_url": "http://127.0.0.1/fast", "sha256": ""},
}


def job(expected: Expectation, **changes: Any) -> DemoJob:
    return DemoJob("job", "http://127.0.0.1/fast", expected, id="1", job={**SUCCEEDED, **changes})


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        (Expectation(), {"status": "failed", "result": None}),
        (Expectation(attempts=3), {}),
        (Expectation(size=108), {}),
        (Expectation(final_path="/slow"), {}),
        (Expectation("failed", error="http_404"), {"status": "failed", "last_error": {"code": "http_500"}}),
    ],
)
def test_a_job_that_ended_otherwise_fails_the_demo(expected: Expectation, changes: dict[str, Any]) -> None:
    wrong = job(expected, **changes)
    assert len(wrong.differences()) == 1
    assert conclude([wrong], wrong.differences(), Console(quiet=True)) == 1


def test_a_job_that_ended_as_it_must_passes() -> None:
    right = job(Expectation(attempts=1, size=107, final_path="/fast"))
    assert right.differences() == []
    assert conclude([right], [], Console(quiet=True)) == 0


def test_a_refused_address_gets_a_line_to_paste() -> None:
    refused = job(Expectation(), status="failed", result=None, last_error={"code": "blocked_target"})
    console = Console(record=True, width=200, file=io.StringIO())
    conclude([refused], refused.differences(), console)
    assert "\n   EGRESS_ALLOW=127.0.0.1:80 ./dev demo http://127.0.0.1/fast\n" in console.export_text()


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://localhost:9/f", "EGRESS_ALLOW=127.0.0.1:9 ./dev demo http://localhost:9/f"),
        ("https://10.0.0.1/?a=1&b=2", "EGRESS_ALLOW=10.0.0.1:443 ./dev demo 'https://10.0.0.1/?a=1&b=2'"),
        ("http://[::1]:9/", "EGRESS_ALLOW='[::1]:9' ./dev demo 'http://[::1]:9/'"),
    ],
)
def test_the_line_names_address_and_port(url: str, line: str) -> None:
    assert hint([url], {}).endswith(f"\n   {line}")


def test_the_line_keeps_what_was_allowed_before() -> None:
    assert "EGRESS_ALLOW=10.1.0.0/16,10.0.0.1:80 " in hint(
        ["http://10.0.0.1/"], {"EGRESS_ALLOW": "10.1.0.0/16, 10.0.0.1:80"}
    )


def test_a_public_address_gets_no_line() -> None:
    assert "EGRESS" not in hint(["http://1.1.1.1/"], {})


def test_an_unusual_port_gets_a_line_to_paste() -> None:
    line = "EGRESS_PORTS=8000-8010,8443 ./dev demo https://1.1.1.1:8443/"
    assert hint(["https://1.1.1.1:8443/"], {"EGRESS_PORTS": "8000-8010"}).endswith(f"\n   {line}")


@pytest.mark.parametrize(("url", "told"), [("http://10.0.0.1/", True), ("http://1.1.1.1/", False), ("nope", False)])
def test_an_address_refused_at_once_gets_the_line_too(url: str, told: bool) -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    assert conclude([DemoJob("url 1", url, Expectation())], ["refused"], console, failed=REFUSED) == REFUSED
    assert ("EGRESS_ALLOW=10.0.0.1:80 ./dev demo http://10.0.0.1/" in console.export_text()) is told


PROBLEM = {
    "type": "about:blank",
    "code": "invalid_request",
    "detail": "The request is not valid.",
    "errors": [{"pointer": "/url", "detail": "No user name, please."}],
}


class Refusing(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(422)
        self.end_headers()
        self.wfile.write(json.dumps(PROBLEM).encode())

    def log_message(self, *_: Any) -> None:
        """Keeps the tests' output free of it."""


def test_a_refused_url_is_told_in_sentences() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with Api(f"http://127.0.0.1:{server.server_port}") as api, pytest.raises(Refused) as caught:
            submit(api, url_jobs(["http://u:p@x/"]), Console(quiet=True))
    said = str(caught.value)
    assert said == "http://u:p@x/: POST /api/v1/jobs: 422 The request is not valid. No user name, please."


def test_the_table_shows_jobs_at_every_stage() -> None:
    jobs = site_jobs("http://127.0.0.1:1", "n")
    jobs[0].job = SUCCEEDED
    jobs[0].attempts = [{"started_at": "2026-01-01T00:00:01Z", "finished_at": "2026-01-01T00:00:03.5Z"}]
    console = Console(record=True, width=150, file=io.StringIO())
    console.print(result_table(jobs))
    text = console.export_text()
    assert "1.00" in text, "the wait"
    assert "2.50" in text, "the duration"
    assert all(each.name in text for each in jobs)


def test_a_download_is_measured(tmp_path: Path) -> None:
    with DemoSite() as site:
        size, digest = save(f"{site.url}/big", tmp_path / "big")
        with pytest.raises(ApiFailed, match="404"):
            save(f"{site.url}/missing", tmp_path / "missing")
    assert (size, digest) == (BIG_BYTES, hashlib.sha256(pattern(BIG_BYTES)).hexdigest())
    assert (tmp_path / "big").stat().st_size == BIG_BYTES

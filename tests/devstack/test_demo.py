"""The demo tells jobs that ended as they must from those that did not."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from devstack.api import ApiFailed
from devstack.demo import DemoJob, Expectation, conclude, result_table, save, site_jobs
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


def test_a_refused_address_names_the_setting() -> None:
    refused = job(Expectation(), status="failed", result=None, last_error={"code": "blocked_target"})
    console = Console(record=True, width=200, file=io.StringIO())
    conclude([refused], refused.differences(), console)
    assert "EGRESS_ALLOW" in console.export_text()


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

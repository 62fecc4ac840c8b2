"""`./dev demo`: real jobs through the API, their progress, what became of them, and a result by its signed link."""

from __future__ import annotations

import hashlib
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from devstack.api import Api, ApiFailed, Refused
from devstack.demo_egress import hint, remedy
from devstack.demo_site import BIG_BYTES, FLAKY_FAILURES, PAGE
from devstack.layout import Layout
from devstack.state import StackState

FINAL = ("succeeded", "failed", "cancelled")
TIME_LIMIT_SECONDS = 150.0
READY_SECONDS = 15.0
POLL_SECONDS = 0.25
DOWNLOAD_SECONDS = 60.0
REFUSED = 2  # exit code
PLAIN_WIDTH = 120  # of the table where there is no terminal to ask


@dataclass(frozen=True)
class Expectation:
    """How a job must end. None: anything will do."""

    status: str = "succeeded"
    attempts: int | None = None
    size: int | None = None
    error: str | None = None
    final_path: str | None = None


@dataclass
class DemoJob:
    """One job of the demo, from its URL to its end."""

    name: str
    url: str
    expected: Expectation
    id: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_final(self) -> bool:
        return self.job.get("status") in FINAL

    @property
    def error_code(self) -> str:
        return str((self.job.get("last_error") or {}).get("code") or "")

    def differences(self) -> list[str]:
        """What is not as expected; empty when the job ended as it must."""
        wanted, result = self.expected, self.job.get("result") or {}
        found = [
            ("state", wanted.status, self.job.get("status")),
            ("attempts", wanted.attempts, self.job.get("attempts")),
            ("bytes", wanted.size, result.get("bytes")),
            ("error", wanted.error, self.error_code),
            ("final path", wanted.final_path, httpx2.URL(str(result.get("final_url") or "")).path),
        ]
        return [f"{what} is {is_} instead of {must}" for what, must, is_ in found if must is not None and must != is_]


def site_jobs(site: str, nonce: str) -> list[DemoJob]:
    """The tour of the demo site. `nonce` makes its flaky pages start anew."""
    return [
        DemoJob("fast", f"{site}/fast", Expectation(attempts=1, size=len(PAGE))),
        DemoJob("slow", f"{site}/slow?seconds=2", Expectation(attempts=1)),
        DemoJob("flaky", f"{site}/flaky/{nonce}", Expectation(attempts=FLAKY_FAILURES + 1)),
        DemoJob("missing", f"{site}/missing", Expectation("failed", attempts=1, error="http_404")),
        DemoJob("rate-limited", f"{site}/limited/{nonce}", Expectation(attempts=2)),
        DemoJob("5 MB body", f"{site}/big", Expectation(attempts=1, size=BIG_BYTES)),
        DemoJob("redirect", f"{site}/redirect", Expectation(attempts=1, size=len(PAGE), final_path="/fast")),
    ]


def url_jobs(urls: Iterable[str]) -> list[DemoJob]:
    return [DemoJob(f"url {number}", url, Expectation()) for number, url in enumerate(urls, 1)]


def run_demo(layout: Layout, running: StackState, urls: Sequence[str]) -> int:
    """0 when every job ended as it must and its bytes arrived whole, 2 when the API refused a URL, else 1."""
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    jobs = url_jobs(urls) if urls else site_jobs(running.demo_site, secrets.token_hex(4))
    with Api(running.base_url, running.api_key) as api:
        try:
            wait_until_ready(api)
            submit(api, jobs, console)
            follow(api, jobs, console)
            for job in jobs:
                job.attempts = api.call("GET", f"/api/v1/jobs/{job.id}/attempts")
            console.print(result_table(jobs))
            problems = [f"{job.name}: {difference}" for job in jobs for difference in job.differences()]
            problems += download(api, _to_download(jobs, all_of_them=bool(urls)), layout.data / "demo", console)
        except Refused as failure:
            return conclude(jobs, [str(failure)], console, chosen=running.chosen, failed=REFUSED)
        except ApiFailed as failure:
            problems = [str(failure)]
    return conclude(jobs, problems, console, chosen=running.chosen)


def wait_until_ready(api: Api) -> None:
    """Gives a role that is just being started again its time. Raises ApiFailed with what `/readyz` complains of."""
    deadline = time.monotonic() + READY_SECONDS
    while problem := api.why_unready():
        if time.monotonic() > deadline:
            raise ApiFailed(f"The stack runs, but /readyz says: {problem}. See ./dev status and the logs.")
        time.sleep(POLL_SECONDS)


def submit(api: Api, jobs: Sequence[DemoJob], console: Console) -> None:
    """Posts every job. Raises Refused, naming the URL, or ApiFailed."""
    for job in jobs:
        try:
            receipt = api.call("POST", "/api/v1/jobs", {"url": job.url, "tags": ["demo"]})
        except Refused as refusal:
            raise Refused(f"{job.url}: {refusal}") from refusal
        job.id = str(receipt["id"])
        job.job = dict(receipt)
        console.print(f"ok submit {job.name}: {job.url} -> {job.id}", soft_wrap=True)


def follow(api: Api, jobs: Sequence[DemoJob], console: Console) -> None:
    """Polls until every job is final: a live table on a terminal, else a line a change. Raises ApiFailed when late."""
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    if not console.is_terminal:
        _poll(api, jobs, deadline, lambda job: console.print(f"   {job.name}: {_progress(job)}"))
        return
    with Live(progress_table(jobs), console=console, transient=True, refresh_per_second=8) as live:
        _poll(api, jobs, deadline, lambda _: live.update(progress_table(jobs)))


def _poll(api: Api, jobs: Sequence[DemoJob], deadline: float, on_change: Callable[[DemoJob], None]) -> None:
    while unfinished := [job for job in jobs if not job.is_final]:
        if time.monotonic() > deadline:
            names = ", ".join(f"{job.name} ({_progress(job)})" for job in unfinished)
            raise ApiFailed(f"Not final after {TIME_LIMIT_SECONDS:.0f} s: {names}. See ./dev status and .data/logs/.")
        for job in unfinished:
            before = _progress(job)
            job.job = api.call("GET", f"/api/v1/jobs/{job.id}")
            if _progress(job) != before:
                on_change(job)
        time.sleep(POLL_SECONDS)


def _progress(job: DemoJob) -> str:
    parts = [str(job.job.get("status", "?"))]
    if job.job.get("attempts"):
        parts.append(f"attempt {job.job['attempts']}")
    if job.error_code:
        parts.append(f"last error {job.error_code}")
    return ", ".join(parts)


def progress_table(jobs: Sequence[DemoJob]) -> Table:
    table = Table("job", "progress", box=None)
    for job in jobs:
        table.add_row(job.name, Text(_progress(job), style="green" if job.is_final else "yellow"))
    return table


def result_table(jobs: Sequence[DemoJob]) -> Table:
    """What a person wants to know of each job, within the 80 columns of a plain terminal."""
    table = Table(title="What became of the jobs", title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("job", "state", "as it\nmust"):
        table.add_column(heading, no_wrap=True)
    for heading in ("attempts", "HTTP\nstatus", "bytes", "wait\ns", "duration\ns"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("last error", overflow="fold")
    for job in jobs:
        verdict = Text("no", style="red") if job.differences() else Text("yes", style="green")
        table.add_row(job.name, str(job.job.get("status")), verdict, *_figures(job), job.error_code or "-")
    return table


def _figures(job: DemoJob) -> list[str]:
    result, error = job.job.get("result") or {}, job.job.get("last_error") or {}
    http_status = result.get("http_status") or error.get("http_status")
    began = [_time(attempt["started_at"]) for attempt in job.attempts if attempt.get("started_at")]
    wait = min(began) - _time(job.job["created_at"]) if began else None
    spent = [
        _time(attempt["finished_at"]) - _time(attempt["started_at"])
        for attempt in job.attempts
        if attempt.get("started_at") and attempt.get("finished_at")
    ]
    size = result.get("bytes")
    return [
        str(job.job.get("attempts", "-")),
        str(http_status or "-"),
        f"{size:,}" if size is not None else "-",
        f"{wait:.2f}" if wait is not None else "-",
        f"{sum(spent):.2f}" if spent else "-",
    ]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _to_download(jobs: Sequence[DemoJob], *, all_of_them: bool) -> list[DemoJob]:
    """Every result of given URLs; of the tour the biggest."""
    done = [job for job in jobs if job.job.get("status") == "succeeded"]
    return done if all_of_them else sorted(done, key=lambda job: int(job.job["result"]["bytes"]))[-1:]


def download(api: Api, jobs: Sequence[DemoJob], folder: Path, console: Console) -> list[str]:
    """Fetches results by their signed links into `folder` and compares them with what the job says of them.

    Returns what does not fit. Raises ApiFailed.
    """
    problems: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        link = api.call("GET", f"/api/v1/jobs/{job.id}/result")
        path = folder / f"{job.id}.bin"
        size, digest = save(str(link["url"]), path)
        said = job.job["result"]
        if (size, digest) != (said["bytes"], said["sha256"]):
            problems.append(f"{job.name}: stored {size} bytes, sha256 {digest}, but the job says {said}")
        console.print(f"ok download {job.name}: {size:,} bytes, sha256 {digest}", soft_wrap=True)
        console.print(f"   saved as {path}", soft_wrap=True)
    return problems


def save(url: str, path: Path) -> tuple[int, str]:
    """Streams a URL into a file; its size and SHA-256. Raises ApiFailed."""
    digest, size = hashlib.sha256(), 0
    try:
        with httpx2.stream("GET", url, timeout=DOWNLOAD_SECONDS, trust_env=False) as answer, path.open("wb") as file:
            if answer.status_code != 200:
                raise ApiFailed(f"The signed link answers {answer.status_code}: {answer.read()[:500]!r}")
            for piece in answer.iter_bytes():
                file.write(piece)
                digest.update(piece)
                size += len(piece)
    except httpx2.HTTPError as error:
        raise ApiFailed(f"The signed link cannot be read: {error}") from error
    return size, digest.hexdigest()


def conclude(
    jobs: Sequence[DemoJob],
    problems: Sequence[str],
    console: Console,
    *,
    chosen: Mapping[str, str] | None = None,
    failed: int = 1,
) -> int:
    """The last lines of the demo and its exit code, `failed` with any problem; `chosen` are the user's settings."""
    for problem in problems:
        console.print(f"!! {problem}", style="red", soft_wrap=True)
    blocked = [job.url for job in jobs if job.error_code == "blocked_target"]
    refused = [job.url for job in jobs if not job.id] if failed == REFUSED else []
    if blocked or remedy(refused, chosen or {}):
        console.print(hint(blocked or refused, chosen or {}), soft_wrap=True)
    if problems:
        return failed
    console.print(f"ok every job ended as it must ({len(jobs)})")
    return 0

"""Processes are known by pid and start mark, and ended with all they started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devstack.processes import STACK_ID, Kind, ProcessRecord, end_leftovers, start_mark

Start = Callable[..., "subprocess.Popen[bytes]"]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes, each in a session of its own as the supervisor does, and ends what is left of them."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def record(process: subprocess.Popen[bytes], kind: Kind = "role") -> ProcessRecord:
    return ProcessRecord("sleeper", kind, process.pid, start_mark(process.pid) or "", "2026-01-01T00:00:00Z")


def test_a_process_keeps_its_mark_and_loses_it_at_its_end(start: Start) -> None:
    process = start(*SLEEP)
    mark = start_mark(process.pid)
    assert mark is not None
    assert start_mark(process.pid) == mark
    process.kill()
    time.sleep(0.2)
    assert start_mark(process.pid) is None, "a zombie counts as ended"


def test_leftovers_are_ended(start: Start) -> None:
    process = start(*SLEEP)
    assert end_leftovers([record(process)], "none") == ["sleeper"]
    assert process.wait(5) == -15


def test_a_process_that_ignores_sigterm_is_killed(start: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = "import pathlib, signal, sys, time; signal.signal(15, signal.SIG_IGN); pathlib.Path(sys.argv[1]).touch()"
    process = start(sys.executable, "-c", f"{code}; time.sleep(60)", str(ready))
    wait_for(ready.exists)
    end_leftovers([record(process)], "none", grace=0.3)
    assert process.wait(5) == -9


def test_a_pid_that_now_belongs_to_another_process_is_left_alone(start: Start) -> None:
    process = start(*SLEEP)
    earlier = replace(record(process), started="1")
    assert end_leftovers([earlier], "none") == []
    time.sleep(0.2)
    assert process.poll() is None


def test_what_was_never_recorded_is_found_by_the_stack_id(start: Start) -> None:
    ours, others = start(*SLEEP, **{STACK_ID: "ours"}), start(*SLEEP, **{STACK_ID: "others"})
    wait_for(lambda: b"ours" in Path(f"/proc/{ours.pid}/environ").read_bytes())
    end_leftovers([], "ours")
    assert ours.wait(5) == -9
    assert others.poll() is None


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)

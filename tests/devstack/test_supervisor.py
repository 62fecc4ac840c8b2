"""The supervisor keeps processes running and ends them with everything they started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devstack.logs import RoleLog, last_lines
from devstack.processes import start_mark
from devstack.supervisor import ChildSpec, Supervisor

PROMISED_RESTART_SECONDS = 5.0
SLEEP = "import time; time.sleep(60)"
# Starts a grandchild that holds the output open and survives its parent, as a web server's workers do.
PARENT = (
    f"import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-c', '{SLEEP}']).pid, flush=True); {SLEEP}"
)


class Bench:
    """A supervisor and what it said."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.pids: list[list[int]] = []
        self.supervisor = Supervisor(folder, self.said.append, self._changed)

    def start(self, code: str, *, grace: float = 5.0) -> None:
        command = [sys.executable, "-u", "-c", code]
        self.supervisor.start(ChildSpec("child", "role", command, dict(os.environ), grace))

    async def pid(self, after: int = 0) -> int:
        """The pid of the child that runs now, which is not `after`."""
        found = 0

        def is_new() -> bool:
            nonlocal found
            found = next((record.pid for record in self.supervisor.records()), 0)
            return found not in (0, after)

        await until(is_new)
        return found

    def _changed(self) -> None:
        self.pids.append([record.pid for record in self.supervisor.records()])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def until(condition: Callable[[], bool], seconds: float = PROMISED_RESTART_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.02)


def test_a_killed_process_runs_again_within_the_promised_time(bench: Bench) -> None:
    async def scene() -> None:
        bench.start(SLEEP)
        first = await bench.pid()
        os.kill(first, signal.SIGKILL)
        second = await bench.pid(after=first)
        assert bench.pids == [[first], [], [second]], "each change is told, so that dev.json can follow"
        await bench.supervisor.stop()

    asyncio.run(scene())
    assert "ended by signal 9" in bench.said[0]


def test_grandchildren_of_a_killed_process_end_before_it_runs_again(bench: Bench, tmp_path: Path) -> None:
    async def scene() -> None:
        bench.start(PARENT)
        first = await bench.pid()
        await until(lambda: bool(last_lines(tmp_path / "child.log", 1)))
        grandchild = int(last_lines(tmp_path / "child.log", 1)[0])
        os.kill(first, signal.SIGKILL)
        await bench.pid(after=first)
        assert start_mark(grandchild) is None
        await bench.supervisor.stop()

    asyncio.run(scene())


def test_stop_ends_a_stubborn_process_and_its_children(bench: Bench, tmp_path: Path) -> None:
    async def scene() -> None:
        bench.start(f"import signal; signal.signal(15, signal.SIG_IGN); {PARENT}", grace=0.3)
        pid = await bench.pid()
        await until(lambda: bool(last_lines(tmp_path / "child.log", 1)))
        await bench.supervisor.stop()
        grandchild = int(last_lines(tmp_path / "child.log", 1)[0])
        await until(lambda: (start_mark(pid), start_mark(grandchild)) == (None, None), 1)

    asyncio.run(scene())
    assert bench.said == ["child did not end within 0 s: killed"]


def test_a_crash_loop_goes_on_slower_and_names_the_last_line(bench: Bench) -> None:
    async def scene() -> int:
        bench.start("import sys; print('the reason'); sys.exit(3)")
        child = bench.supervisor.children[0]
        child.failures = 8  # as after eight more of the same
        await until(lambda: len(bench.said) >= 3, 10)
        await bench.supervisor.stop()
        return child.failures

    assert asyncio.run(scene()) >= 10
    assert bench.said[:3] == [
        "child ended with exit code 3; started again in 3.0 s",
        "child ended with exit code 3; started again in 3.0 s",
        "child failed 10 times in a row. It last said: the reason",
    ]


def test_a_program_that_is_not_there_is_tried_again(bench: Bench) -> None:
    async def scene() -> None:
        bench.supervisor.start(ChildSpec("child", "role", ["/nonexistent/program"], {}, 1.0))
        await until(lambda: len(bench.said) >= 2)
        await bench.supervisor.stop()

    asyncio.run(scene())
    assert "could not start" in bench.said[0]


def test_a_log_is_bounded_and_keeps_its_predecessor(tmp_path: Path) -> None:
    log = RoleLog(tmp_path, "child")
    for number in range(25):
        log.write(b"%02d" % number + b"x" * (1024 * 1024 - 3) + b"\n")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes == {"child.log": 5 * 1024 * 1024, "child.log.1": 10 * 1024 * 1024}
    assert last_lines(tmp_path / "child.log", 1)[0].startswith("x")

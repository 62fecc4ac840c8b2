"""Nothing of a run outlives it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil

from devstack.layout import ROOT

RUN = """
import os, subprocess, time
from tests.faults.guard import Guard
with Guard() as guard:
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, **guard.environment}, start_new_session=True)
    print(child.pid, flush=True)
    time.sleep(600)
"""


def test_the_processes_of_a_killed_run_are_ended() -> None:
    run = subprocess.Popen([sys.executable, "-c", RUN], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    child = psutil.Process(int(run.stdout.readline()))
    run.send_signal(signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 20
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.1)

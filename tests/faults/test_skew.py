"""The wrong clock of one worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.skew import SKEW_SECONDS, wrong_clock

LOOK = "import time; began = time.monotonic(); time.sleep(0.2); print(time.time(), time.monotonic() - began)"


def test_the_wall_clock_is_ahead_and_a_sleep_is_as_long_as_ever(tmp_path: Path) -> None:
    environment = wrong_clock(tmp_path)
    if not environment:
        pytest.skip("there is no C compiler, so the runs have all clocks right")
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env={**os.environ, **environment}, capture_output=True, text=True, timeout=30
    )
    now, slept = (float(word) for word in done.stdout.split())
    assert now - time.time() == pytest.approx(SKEW_SECONDS, abs=5)
    assert slept < 5

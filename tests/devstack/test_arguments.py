"""What can be known to be wrong is said before anything is installed; status and down install nothing at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which nothing was ever run."""
    made = tmp_path_factory.mktemp("a fresh") / "my clone"
    for folder in ("devstack", "bench"):
        shutil.copytree(ROOT / folder, made / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dev", made)
    return made


def run(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`./dev`, which has no requirements file here: a try to install fails by FileNotFoundError."""
    environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(["/bin/sh", str(clone / "dev"), *arguments], env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    assert not (clone / ".venv").exists()
    assert not (clone / ".data").exists()
    return done


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["bench", "nope"], "invalid choice: 'nope'"),
        (["bench", "--tiny", "pool", "--jobs", "0"], "must be at least 1"),
        (["demo", "http://127.0.0.1/", "ftp://x/"], "'ftp://x/' does not start with http:// or https://"),
        (["demo", "https://"], "names no host"),
        (["up", "--detached-from-all"], "unrecognized arguments"),
        (["status", "now"], "unrecognized arguments"),
    ],
)
def test_arguments_are_refused_before_an_install(clone: Path, arguments: list[str], reason: str) -> None:
    done = run(clone, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr


@pytest.mark.parametrize("command", ["demo", "bench"])
def test_help_needs_no_install(clone: Path, command: str) -> None:
    done = run(clone, command, "--help")
    assert done.returncode == 0
    assert f"usage: ./dev {command}" in done.stdout


def test_status_and_down_of_a_fresh_clone_say_that_nothing_runs(clone: Path) -> None:
    status, as_json, down, wipe = (
        run(clone, *line.split()) for line in ("status", "status --json", "down", "down --wipe")
    )
    assert (status.returncode, status.stdout) == (1, "Nothing runs. ./dev up starts it.\n")
    assert (as_json.returncode, json.loads(as_json.stdout)["running"]) == (1, False)
    assert [down.returncode, wipe.returncode] == [0, 0]
    assert "nothing runs" in down.stderr


def test_what_runs_before_an_install_needs_the_standard_library_only() -> None:
    for module in ("devstack.bootstrap", "bench.arguments"):
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module}"
        subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)

"""One whole stack, started as `./dev up` does, for the tests that only its OpenAPI document leads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devstack.environment import SETTING_NAMES
from devstack.processes import STACK_ID

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180
SHORT_WAITS = {"RETRY_BASE_SECONDS": "0.2"}
# Without `events` no webhook is sent: what the fuzzer makes up would be asked for on the internet.
ROLES = ("web", "publisher", "worker")


@dataclass(frozen=True)
class Stack:
    """A running stack, and where its document was saved."""

    base_url: str
    api_key: str
    demo_site: str
    environment: dict[str, str]
    schema: Path

    def manage(self, *arguments: str) -> None:
        """Run `manage.py` with the environment of the stack."""
        run(self.environment, "manage", *arguments)


def run(environment: dict[str, str], *arguments: str) -> None:
    """Run one of the commands of `./dev`."""
    command = [sys.executable, "-m", "devstack", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=START_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own, with nothing of this process's servers; gone afterwards."""
    folder = tmp_path_factory.mktemp("contract")
    procfile = folder / "Procfile"
    lines = (ROOT / "Procfile").read_text(encoding="utf-8").splitlines(keepends=True)
    procfile.write_text("".join(line for line in lines if line.startswith(ROLES)), encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if name not in (*SETTING_NAMES, STACK_ID, "PORT")}
    paths = {"DEV_DATA_DIR": str(folder / "data"), "DEV_PROCFILE": str(procfile)}
    environment = inherited | SHORT_WAITS | paths
    try:
        run(environment, "up", "--detach")
        state: dict[str, Any] = json.loads((folder / "data" / "dev.json").read_text(encoding="utf-8"))
        schema = folder / "schema.json"
        with urllib.request.urlopen(f"{state['base_url']}/api/v1/schema") as answer:
            schema.write_bytes(answer.read())
        yield Stack(state["base_url"], state["api_key"], state["demo_site"], environment, schema)
    finally:
        run_down(environment)


def run_down(environment: dict[str, str]) -> None:
    """Stop the stack and delete its data."""
    command = [sys.executable, "-m", "devstack.bootstrap", "down", "--wipe"]  # as ./dev does
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=START_SECONDS, check=True)

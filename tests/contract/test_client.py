"""A typed client that a program made of the OpenAPI document, and nothing else, walks through the README."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.conftest import ROOT, Stack

MADE_BY = "import sys; from openapi_python_client.cli import app; sys.exit(app())"
# The client has no serializer for lines; the array of the same call is there.
KNOWN_WARNINGS = ("application/x-ndjson", "application/jsonl")


@pytest.fixture(scope="module")
def client(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the package `made`."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "config.yml").write_text("post_hooks: []\n", encoding="utf-8")
    options = ["--path", str(stack.schema), "--output-path", str(folder / "made"), "--meta", "none"]
    command = [sys.executable, "-c", MADE_BY, "generate", *options, "--config", str(folder / "config.yml")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    warned = [line for line in done.stdout.splitlines() if line.startswith(("WARNING", "ERROR", "Unsupported"))]
    unknown = [line for line in warned if not line.endswith(KNOWN_WARNINGS) and "/jobs/batch" not in line]
    assert unknown == [], done.stdout
    return folder


def test_the_walk_of_the_readme_by_a_generated_client(stack: Stack, client: Path) -> None:
    """In a process of its own, which finds the client and httpx and nothing of the service."""
    walk = Path(__file__).with_name("walk.py").read_text(encoding="utf-8")
    (client / "walk.py").write_text(walk, encoding="utf-8")
    command = [sys.executable, "walk.py", stack.base_url, stack.api_key, stack.demo_site]
    done = subprocess.run(command, cwd=client, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "walked" in done.stdout


def test_the_generated_client_has_the_types_that_the_walk_uses(client: Path) -> None:
    walk = Path(__file__).with_name("walk.py").read_text(encoding="utf-8")
    (client / "walk.py").write_text(walk, encoding="utf-8")
    options = ["--strict", "--config-file", "", "--follow-imports", "silent", "--cache-dir", str(client / "cache")]
    command = [sys.executable, "-m", "mypy", *options, "walk.py"]
    done = subprocess.run(command, cwd=client, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(ROOT) not in done.stdout

"""Every call of the OpenAPI document with what a fuzzer makes of it, right and wrong, against a whole stack."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.conftest import Stack

SECONDS = 30  # the fuzzer's own budget; it repeats until that is spent
EXAMPLES = 8  # of each call in each phase
SEED = "1"
CONFIG = """
[checks]
# A schema cannot say what a URL, a host or a cursor is: not all that fits it is taken.
positive_data_acceptance.enabled = false

[[operations]]
include-operation-id = "submit_batch"
# A batch is taken with its wrong rows, each told by itself.
checks.negative_data_rejection.enabled = false
"""


def test_a_fuzzer_finds_no_fault_and_no_answer_that_the_document_does_not_foresee(stack: Stack, tmp_path: Path) -> None:
    stack.manage("set_tenant", "demo", "--pause")  # the targets that it makes up are not to be fetched
    (tmp_path / "schemathesis.toml").write_text(CONFIG, encoding="utf-8")
    options = ["--seed", SEED, "--max-time", str(SECONDS), "--max-examples", str(EXAMPLES), "--no-color"]
    options += ["--no-shrink", "--url", stack.base_url, "--warnings", "off"]
    program = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
    command = [sys.executable, "-c", program, "--config-file", str(tmp_path / "schemathesis.toml"), "run"]
    key = ["--header", f"Authorization: Bearer {stack.api_key}"]
    done = subprocess.run(
        [*command, str(stack.schema), *key, *options], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        pytest.fail(done.stdout[-20_000:] + done.stderr[-2_000:])
    assert re.search(r"Tested: [1-9]", done.stdout), done.stdout

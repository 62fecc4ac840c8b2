"""The verification examples of docs/webhooks.md do what they say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.docs.markdown import ROOT, blocks, section
from webhooks.signing import new_secret, signed_headers

VERIFY = section((ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8"), "Verify it")
BODY = b'{"type":"job.finished","timestamp":"2026-11-30T08:00:00.000000Z","data":{"tags":["\xc3\xbc"]}}'

Verify = Callable[[str, dict[str, str], bytes], bool]


def in_python(source: str) -> Verify:
    names: dict[str, Any] = {}
    exec(source, names)  # noqa: S102  our own page

    def verify(secret: str, headers: dict[str, str], body: bytes) -> bool:
        try:
            return bool(names["verified"](secret, headers, body)["type"] == "job.finished")
        except Exception:  # noqa: BLE001  whatever it raises, it refused
            return False

    return verify


def in_shell(source: str) -> Verify:
    def verify(secret: str, headers: dict[str, str], body: bytes) -> bool:
        named = {name.replace("-", "_").upper(): value for name, value in headers.items()}
        done = subprocess.run(["sh", "-c", source], input=body, env={**os.environ, **named, "SECRET": secret})
        return done.returncode == 0

    return verify


PYTHON = [in_python(source) for source in blocks(VERIFY, "python")]
SHELL = [in_shell(source) for source in blocks(VERIFY, "sh")]


def test_there_are_examples_in_python_and_shell() -> None:
    assert (len(PYTHON), len(SHELL)) == (2, 1)


@pytest.mark.parametrize("verify", [*PYTHON, *SHELL], ids=["library", "plain python", "shell"])
def test_an_example_takes_what_is_right_and_nothing_else(verify: Verify) -> None:
    now = datetime.now(tz=UTC)
    old, new = new_secret(), new_secret()
    headers = dict(signed_headers("0198c6a2", BODY, [new], at=now))
    rotating = dict(signed_headers("0198c6a2", BODY, [new, old], at=now))
    assert verify(new, headers, BODY)
    assert verify(old, rotating, BODY)
    assert verify(new, rotating, BODY)
    assert not verify(old, headers, BODY)
    assert not verify(new, headers, BODY + b" ")
    assert not verify(new, headers | {"webhook-id": "another"}, BODY)
    for away in (timedelta(minutes=-6), timedelta(minutes=6)):
        assert not verify(new, dict(signed_headers("0198c6a2", BODY, [new], at=now + away)), BODY)

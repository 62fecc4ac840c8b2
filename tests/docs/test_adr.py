"""Decision records are numbered without gaps and all say the same four things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, section

RECORDS = sorted((ROOT / "docs" / "adr").glob("*.md"))


def test_records_are_numbered_without_gaps() -> None:
    assert [int(path.name.split("-")[0]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_says_context_decision_consequences_and_what_was_measured(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert re.match(rf"# {path.name.split('-')[0]} \S", text)
    for title in ("Context", "Decision", "Consequences", "Measured"):
        assert section(text, title).strip(), f"{title} says nothing"

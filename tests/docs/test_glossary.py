"""The glossary has one entry a word, in order."""

from __future__ import annotations

from jobs.states import Priority, State
from tests.docs.markdown import ROOT, table_rows

WORDS = [row[0].lower() for row in table_rows((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))]


def test_a_word_stands_once_and_in_its_place() -> None:
    assert sorted(set(WORDS)) == WORDS


def test_every_role_and_state_is_explained() -> None:
    explained = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    roles = [line.split(":")[0] for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines() if line]

    assert [word for word in (*roles, *State.values, *Priority.labels) if word not in explained] == []

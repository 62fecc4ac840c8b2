"""The page on the state machine shows the moves that the code allows, and no other."""

from __future__ import annotations

import re

from jobs.states import ALLOWED, FINAL, State
from tests.docs.markdown import ROOT, blocks, section, table_rows

PAGE = (ROOT / "docs" / "state_machine.md").read_text(encoding="utf-8")
MOVES = {(source.value, target.value) for source, targets in ALLOWED.items() for target in targets}
ARROW = re.compile(r"^\s*(\S+)\s*-->\s*([^\s:]+)", re.MULTILINE)


def arrows() -> set[tuple[str, str]]:
    (diagram,) = blocks(PAGE, "mermaid")
    return set(ARROW.findall(diagram))


def test_the_diagram_shows_exactly_the_moves_the_code_allows() -> None:
    assert {move for move in arrows() if "[*]" not in move} == MOVES


def test_a_job_starts_queued_and_ends_in_each_final_state() -> None:
    ends = {move for move in arrows() if "[*]" in move}

    assert ends == {("[*]", State.QUEUED.value), *((state.value, "[*]") for state in FINAL)}


def test_every_move_says_who_makes_it() -> None:
    rows = table_rows(section(PAGE, "Who moves a job"))

    assert {(row[0].strip("`"), row[1].strip("`")) for row in rows} == MOVES
    assert all(cell for row in rows for cell in row)

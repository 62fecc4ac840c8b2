"""The table of requirements is complete: every row names its tests, and every test it names exists."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest

from tests.docs.markdown import CODE, ROOT, section, table_rows
from tests.docs.paths import missing_test

PAGE = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
CALLERS = {"script", "person", "operator", "back-office"}


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement: its number, what it says, and the tests that hold it."""

    id: str
    cells: tuple[str, ...]
    tests: tuple[str, ...]


def rows(title: str) -> list[Row]:
    """The rows under a heading whose last column names tests."""
    found = table_rows(section(PAGE, title))
    return [Row(row[0], tuple(row[1:-1]), tuple(CODE.findall(row[-1]))) for row in found]


FUNCTIONAL = rows("Functional requirements")
NON_FUNCTIONAL = rows("Non-functional requirements")
PROMISED = table_rows(section(PAGE, "Promised, not built yet"))


def by_id(row: Row) -> str:
    return row.id


@pytest.mark.parametrize("row", [*FUNCTIONAL, *NON_FUNCTIONAL], ids=by_id)
def test_every_requirement_names_tests_that_exist(row: Row) -> None:
    assert row.tests, f"{row.id} names no test"
    assert [problem for name in row.tests if (problem := missing_test(ROOT, name))] == []


@pytest.mark.parametrize("row", FUNCTIONAL, ids=by_id)
def test_every_functional_requirement_has_a_caller(row: Row) -> None:
    callers, *said = row.cells

    assert set(re.split(r",\s*", callers)) <= CALLERS
    assert all(said)


@pytest.mark.parametrize("row", NON_FUNCTIONAL, ids=by_id)
def test_every_property_has_a_target_and_says_what_breaks_without_it(row: Row) -> None:
    name, target, breaks = row.cells

    assert all((name, target, breaks))
    assert re.search(r"\d|never|every|no |none|all", target), "a target can be checked"


def test_numbers_are_given_once_and_without_gaps() -> None:
    promised = [row[0] for row in PROMISED]
    for kind, built in (("FR", FUNCTIONAL), ("NFR", NON_FUNCTIONAL)):
        numbers = [int(name.split("-")[1]) for name in [*map(by_id, built), *promised] if name.startswith(f"{kind}-")]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_a_promised_row_claims_no_test() -> None:
    assert PROMISED
    assert not any("tests/" in cell for row in PROMISED for cell in row)


def sizing() -> dict[str, float]:
    """The figures of the sizing table by name; the first number in the cell counts."""
    table = table_rows(section(PAGE, "Sizing"))
    return {row[0]: float(re.sub(r"[^\d.]", "", row[1].split(" ")[0])) for row in table}


def test_the_sizing_figures_follow_from_their_inputs() -> None:
    figures = sizing()
    average = figures["users"] * figures["jobs a user a day"] / 86_400
    peak = average * figures["peak factor"]
    at_once = peak * figures["seconds a job"]
    wait, polled = figures["seconds of wait"], figures["seconds between polls"]
    polls = (wait + figures["seconds a job"]) / polled + 1  # and one request for the result
    a_day = figures["users"] * figures["jobs a user a day"] * figures["KiB a result"] / 2**20

    assert figures["jobs a second, average"] == pytest.approx(average, abs=0.005)
    assert figures["jobs a second, peak"] == pytest.approx(peak, abs=0.05)
    assert figures["jobs at once"] == round(at_once)
    assert figures["workers"] == math.ceil(at_once / figures["jobs a worker"])
    assert figures["jobs queued at peak"] == round(peak * wait)
    assert figures["reads a second"] == round(peak * polls)
    assert figures["jobs piled up in 5 minutes of peak, pool sized for the average"] == round((peak - average) * 300)
    assert figures["jobs at once, 2 seconds a job"] == round(peak * 2)
    assert figures["jobs at once, 30 seconds a job"] == round(peak * 30)
    assert figures["GiB of results a day"] == round(a_day)
    assert figures["TiB of results in 30 days"] == pytest.approx(a_day * 30 / 1024, abs=0.05)

"""What is made of figures: tables, JSON, pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from bench import machine
from bench.figures import Figure, Report, percentile, written
from bench.picture import draw

SVG = "{http://www.w3.org/2000/svg}"


def report(*figures: Figure) -> Report:
    return Report("demo", "a < b & c", {"jobs": 3}, figures, machine.facts())


FIGURES = (
    Figure("fast", 1.0, "ms", bar=2.0),
    Figure("slow", 3.0, "ms", bar=2.0),
    Figure("many", 600.0, "jobs/s", bar=500.0, more_is_better=True),
    Figure("few", 400.0, "jobs/s", bar=500.0, more_is_better=True),
    Figure("plain", 5.0, "times"),
)


def test_a_bar_is_a_limit_or_a_floor() -> None:
    assert [figure.within_bar for figure in FIGURES] == [True, False, True, False, None]


def test_the_table_tells_which_bar_was_missed() -> None:
    lines = report(*FIGURES).table().splitlines()
    assert [line.rpartition(": ")[2] for line in lines[1:5]] == ["met", "MISSED", "met", "MISSED"]
    assert "bar" not in lines[5]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 5), (0.95, 10), (0.99, 10), (1.0, 10), (0.1, 1)])
def test_a_percentile_is_a_value_that_was_seen(share: float, expected: float) -> None:
    assert percentile([10, 1, 9, 2, 8, 3, 7, 4, 6, 5], share) == expected


def test_figures_keep_the_digits_that_count() -> None:
    assert [written(value) for value in (0.123, 9.876, 12.34, 123.4, 12345.6)] == [
        "0.12",
        "9.88",
        "12.3",
        "123",
        "12,346",
    ]


def test_the_picture_is_xml_with_a_bar_in_proportion_for_each_figure() -> None:
    root = ElementTree.fromstring(draw(report(*FIGURES)))  # noqa: S314  our own document
    widths = {
        kind: [float(r.attrib["width"]) for r in root.iter(f"{SVG}rect") if r.get("class") == kind]
        for kind in ("in", "out")
    }
    assert len(widths["in"]) + len(widths["out"]) == len(FIGURES)
    many, fast, plain = widths["in"]
    few, slow = widths["out"]
    assert slow / fast == pytest.approx(3, rel=0.01)
    assert many / few == pytest.approx(1.5, rel=0.01)
    assert plain == pytest.approx(many)  # each unit has a scale of its own
    assert len(list(root.iter(f"{SVG}line"))) == 4
    assert "demo: a < b & c" in [text.text for text in root.iter(f"{SVG}text")]


def test_the_machine_is_described_without_naming_it() -> None:
    facts = machine.facts()
    assert facts["cpu_count"] >= 1
    assert {"Django", "celery"} <= set(facts["versions"])
    assert not {"host", "hostname", "user", "node"} & set(facts)

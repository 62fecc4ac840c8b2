"""What a benchmark has measured, and how that is shown and kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `bar` is the promise it is held against, if there is one."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    more_is_better: bool = False

    @property
    def within_bar(self) -> bool | None:
        """None without a bar."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.more_is_better else self.value <= self.bar


@dataclass(frozen=True, slots=True)
class Report:
    """One run of one benchmark; `machine` as `bench.machine.facts` gives it."""

    benchmark: str
    summary: str
    sizes: Mapping[str, int]
    figures: Sequence[Figure]
    machine: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """What is written as JSON."""
        return {
            "benchmark": self.benchmark,
            "summary": self.summary,
            "sizes": dict(self.sizes),
            "figures": [_figure_document(figure) for figure in self.figures],
            "machine": dict(self.machine),
        }

    def table(self) -> str:
        """What is printed."""
        rows = [(figure.name, written(figure.value), figure.unit, _judged(figure)) for figure in self.figures]
        wide = max(len(row[0]) for row in rows)
        lines = [f"  {name:<{wide}}  {value:>9} {unit:<9} {judged}".rstrip() for name, value, unit, judged in rows]
        return "\n".join([f"{self.benchmark}: {self.summary}", *lines])


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of all values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def written(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _judged(figure: Figure) -> str:
    if figure.bar is None:
        return ""
    relation = ">=" if figure.more_is_better else "<="
    return f"bar {relation} {written(figure.bar)}: {'met' if figure.within_bar else 'MISSED'}"


def _figure_document(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "value": round(figure.value, 4),
        "unit": figure.unit,
        "bar": figure.bar,
        "more_is_better": figure.more_is_better,
        "within_bar": figure.within_bar,
    }

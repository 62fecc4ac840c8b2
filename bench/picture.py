"""A report as an SVG bar chart: one scale for all figures of a unit, a dashed line where a bar is promised."""

from __future__ import annotations

from itertools import groupby

from bench.figures import Figure, Report, written
from core.svg import document, line, text

WIDTH, LEFT, RIGHT = 860, 330, 130  # pixels: all, the names, the values
ROW, GAP, TOP, BOTTOM = 26, 30, 54, 34
STYLE = ".in{fill:#3e7cb1}.out{fill:#c8553d}.bar{stroke:#1f2933;stroke-dasharray:4 3}"


def draw(report: Report) -> str:
    """The whole SVG document."""
    parts: list[str] = []
    y = TOP
    for unit, group in groupby(sorted(report.figures, key=lambda figure: figure.unit), key=lambda figure: figure.unit):
        figures = list(group)
        parts.append(text(0, y + 14, unit, "small"))
        y += GAP - 8
        most = max(max(figure.value, figure.bar or 0.0) for figure in figures) or 1.0
        for figure in figures:
            parts.append(_row(figure, y, most))
            y += ROW
        y += GAP - ROW // 2
    machine = report.machine
    foot = f"{machine['cpu_count']} CPUs, Python {machine['python']}, load {machine['load_before']}, {machine['at']}"
    parts += [text(0, 20, f"{report.benchmark}: {report.summary}", "head"), text(0, y + 10, foot, "small")]
    return document(WIDTH, y + BOTTOM, report.summary, STYLE, parts)


def _row(figure: Figure, y: int, most: float) -> str:
    room = WIDTH - LEFT - RIGHT
    length = max(1.0, room * figure.value / most)
    kind = "out" if figure.within_bar is False else "in"
    parts = [
        text(0, y + 15, figure.name),
        f'<rect class="{kind}" x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{ROW - 8}" rx="2"/>',
        text(LEFT + length + 6, y + 15, f"{written(figure.value)} {figure.unit}"),
    ]
    if figure.bar is not None:
        x = LEFT + room * figure.bar / most
        parts.append(line(x, y - 1, x, y + ROW - 3, "bar"))
    return "".join(parts)

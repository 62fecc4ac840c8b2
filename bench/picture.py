"""A report as an SVG bar chart: one scale for all figures of a unit, a dashed line where a bar is promised."""

from __future__ import annotations

from html import escape
from itertools import groupby

from bench.figures import Figure, Report, written

WIDTH, LEFT, RIGHT = 860, 330, 130  # pixels: all, the names, the values
ROW, GAP, TOP, BOTTOM = 26, 30, 54, 34
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.head{font-weight:600;font-size:16px}.small{fill:#616e7c;"
    "font-size:11px}.in{fill:#3e7cb1}.out{fill:#c8553d}.bar{stroke:#1f2933;stroke-dasharray:4 3}"
)


def draw(report: Report) -> str:
    """The whole SVG document."""
    parts: list[str] = []
    y = TOP
    for unit, group in groupby(sorted(report.figures, key=lambda figure: figure.unit), key=lambda figure: figure.unit):
        figures = list(group)
        parts.append(_text(0, y + 14, unit, "small"))
        y += GAP - 8
        most = max(max(figure.value, figure.bar or 0.0) for figure in figures) or 1.0
        for figure in figures:
            parts.append(_row(figure, y, most))
            y += ROW
        y += GAP - ROW // 2
    machine = report.machine
    foot = f"{machine['cpu_count']} CPUs, Python {machine['python']}, load {machine['load_before']}, {machine['at']}"
    parts += [_text(0, 20, f"{report.benchmark}: {report.summary}", "head"), _text(0, y + 10, foot, "small")]
    height = y + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 0 {WIDTH + 20} {height}" role="img" '
        f'aria-label="{escape(report.summary)}"><style>{STYLE}</style>'
        f'<rect x="-10" width="{WIDTH + 20}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _row(figure: Figure, y: int, most: float) -> str:
    room = WIDTH - LEFT - RIGHT
    length = max(1.0, room * figure.value / most)
    kind = "out" if figure.within_bar is False else "in"
    parts = [
        _text(0, y + 15, figure.name),
        f'<rect class="{kind}" x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{ROW - 8}" rx="2"/>',
        _text(LEFT + length + 6, y + 15, f"{written(figure.value)} {figure.unit}"),
    ]
    if figure.bar is not None:
        x = LEFT + room * figure.bar / most
        parts.append(f'<line class="bar" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 1}" y2="{y + ROW - 3}"/>')
    return "".join(parts)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(text)}</text>'

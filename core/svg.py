"""The few pieces of SVG that the project's pictures are made of. Coordinates are pixels; what is text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

MARGIN: Final = 10
BASE_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.head{font-weight:600;font-size:16px}"
    ".small{fill:#616e7c;font-size:11px}"
)


def document(width: float, height: float, label: str, style: str, parts: Iterable[str]) -> str:
    """The whole document on white, with a margin at both sides. `label` is what a screen reader says."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-{MARGIN} 0 {width + 2 * MARGIN:g} {height:g}" role="img" '
        f'aria-label="{escape(label)}"><style>{BASE_STYLE}{style}</style>'
        f'<rect x="-{MARGIN}" width="{width + 2 * MARGIN:g}" height="{height:g}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Words on the base line at `y`; `kind` names classes of the style."""
    return f'<text x="{x:.1f}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:g}" y2="{y2:g}"/>'

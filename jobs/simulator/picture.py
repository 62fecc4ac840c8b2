"""A run as an SVG picture: who had which slot when, above how many jobs of each tenant waited.

A large pool has no room for a line per slot: it shows how many slots each tenant had instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from core.svg import document, line, text
from jobs.simulator.figures import jain, tenant_figures
from jobs.simulator.record import Outcome, Run, Sample

WIDTH: Final = 960
LEFT: Final = 62  # pixels for the names of slots and the figures of an axis
RIGHT: Final = 14
LANES_HEIGHT: Final = 256
WAITING_HEIGHT: Final = 120
MOST_LANES: Final = 40
MOST_BLOCKS: Final = 5_000  # more would be thinner than a pixel
MOST_BLOCKED_HOSTS: Final = 6
POINTS: Final = 400  # of a line
CHARACTER: Final = 7.3  # pixels, at most on average, in 13 px letters

# Okabe and Ito (2008): told apart by the colour-blind; without the yellow, too pale on white. Then the same ones paler.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#555555")
DASHES: Final = ("none", "7 3", "2 2", "9 2 2 2")
STYLE: Final = (
    ".axis{stroke:#9aa5b1}.grid{stroke:#e4e7eb}.job{stroke:#fff;stroke-width:.7}.wait{fill:none;stroke-width:2}"
    ".end{text-anchor:end}.mid{text-anchor:middle}.blocked{fill:#e4e7eb}"
)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A part of the picture with axes: where it is, and how far they go."""

    top: float
    height: float
    seconds: float
    most: float

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(at, self.seconds) / self.seconds

    def y(self, value: float) -> float:
        return self.top + self.height * (1.0 - value / self.most)

    @property
    def bottom(self) -> float:
        return self.top + self.height


def draw(outcome: Outcome, order: str, priorities: str) -> str:
    """The whole SVG document; the same run gives the same text."""
    scenario = outcome.scenario
    title = f"{scenario.title}: {', '.join(_rules(outcome, order, priorities))}"
    legend, top = _legend(outcome)
    pool = _Frame(top + 38, LANES_HEIGHT, scenario.horizon, scenario.slots)
    blocked, below = _blocked(outcome, pool)
    queues = _Frame(below + 40, WAITING_HEIGHT, scenario.horizon, _longest_queue(outcome))
    parts = [text(0, 20, title, "head"), text(0, 40, _summary(outcome), "small"), *legend]
    parts += [*_pool(outcome, pool), *blocked, *_waiting(outcome, queues), *_seconds(queues)]
    return document(WIDTH, queues.bottom + 44, title, STYLE, parts)


def _rules(outcome: Outcome, order: str, priorities: str) -> Iterator[str]:
    yield "fair order" if order == "fair" else "first come, first served"
    if len({tenant.priority for tenant in outcome.scenario.tenants}) > 1:
        yield "strict priorities" if priorities == "strict" else "priorities by weight"


def _summary(outcome: Outcome) -> str:
    slots = outcome.scenario.slots
    length = outcome.scenario.duration.mean
    return (
        f"{slots:,} slots, {length:,.6g} s a job, seed {outcome.scenario.seed}. Jain's index {jain(outcome):.3f}. "
        "In brackets: the share of the slots while tenants competed for them."
    )


def _legend(outcome: Outcome) -> tuple[list[str], float]:
    """A square and a name for each tenant, in as many rows as it takes, and where they end."""
    parts: list[str] = []
    x, y = 0.0, 62.0
    for index, figures in enumerate(tenant_figures(outcome)):
        words = f"{figures.name} ({figures.share:.0%})"
        width = 40 + CHARACTER * len(words)
        if x + width > WIDTH and x > 0.0:
            x, y = 0.0, y + 20.0
        parts += [f'<rect {_fill(index)} x="{x:.1f}" y="{y - 11:g}" width="13" height="13" rx="2"/>']
        parts += [text(x + 19, y, words)]
        x += width
    return parts, y


def _pool(outcome: Outcome, frame: _Frame) -> Iterator[str]:
    few = len(outcome.runs) == sum(tally.started for tally in outcome.tallies) <= MOST_BLOCKS
    if few and outcome.scenario.slots <= MOST_LANES:
        yield text(0, frame.top - 9, "slots, by the tenant whose job ran", "small")
        yield from _lanes(outcome, frame)
    else:
        yield text(0, frame.top - 9, "slots busy, by tenant", "small")
        yield from _scale(frame)
        yield from _areas(outcome, frame)
    yield line(LEFT, frame.bottom, WIDTH - RIGHT, frame.bottom, "axis")


def _lanes(outcome: Outcome, frame: _Frame) -> Iterator[str]:
    slots = outcome.scenario.slots
    height = frame.height / slots
    every = ceil(14 / height)
    for slot in range(0, slots, every):
        yield text(LEFT - 8, round(frame.top + (slot + 0.5) * height + 4, 1), str(slot + 1), "small end")
    for tenant in range(len(outcome.tallies)):
        blocks = (_block(run, frame, height) for run in outcome.runs if run.tenant == tenant)
        yield f'<path class="job" {_fill(tenant)} d="{"".join(blocks)}"/>'


def _block(run: Run, frame: _Frame, height: float) -> str:
    left, top = frame.x(run.start), frame.top + run.slot * height
    return f"M{left:.1f} {top + 0.5:.1f}h{frame.x(run.end) - left:.1f}v{height - 1:.1f}H{left:.1f}z"


def _areas(outcome: Outcome, frame: _Frame) -> Iterator[str]:
    """The slots each tenant had, one upon the other."""
    samples = _thinned(outcome.samples)
    below = [0.0] * len(samples)
    for tenant in range(len(outcome.tallies)):
        above = [low + sample.running[tenant] for low, sample in zip(below, samples, strict=True)]
        edge = [f"{frame.x(s.at):.1f} {frame.y(value):.1f}" for s, value in zip(samples, above, strict=True)]
        back = [f"{frame.x(s.at):.1f} {frame.y(value):.1f}" for s, value in zip(samples, below, strict=True)]
        yield f'<path {_fill(tenant)} d="M{"L".join([*edge, *reversed(back)])}z"/>'
        below = above


def _waiting(outcome: Outcome, frame: _Frame) -> Iterator[str]:
    yield text(0, frame.top - 9, "jobs waiting, by tenant", "small")
    yield from _scale(frame)
    samples = _thinned(outcome.samples)
    for tenant in range(len(outcome.tallies)):
        points = " ".join(f"{frame.x(s.at):.1f},{frame.y(s.waiting[tenant]):.1f}" for s in samples)
        dash = DASHES[tenant % len(DASHES)]
        yield f'<polyline class="wait" {_stroke(tenant)} stroke-dasharray="{dash}" points="{points}"/>'


def _longest_queue(outcome: Outcome) -> float:
    """The most jobs that ever waited of one tenant; at least 1, so that there is a scale."""
    return max(1, *(max(sample.waiting) for sample in outcome.samples))


def _blocked(outcome: Outcome, pool: _Frame) -> tuple[list[str], float]:
    """Below the slots, a bar with the host's name for each time in which it was blocked; and where these bars end."""
    parts: list[str] = []
    bottom = pool.bottom
    for name, host in [item for item in outcome.scenario.hosts.items() if item[1].blocked][:MOST_BLOCKED_HOSTS]:
        bottom += 20
        for since, until in host.blocked:
            left, right = pool.x(since), pool.x(until)
            words = f"{name} blocked"
            parts.append(
                f'<rect class="blocked" x="{left:.1f}" y="{bottom - 16:g}" width="{right - left:.1f}" height="16"/>'
            )
            if right - left > CHARACTER * len(words):
                parts.append(text(left + 6, bottom - 4, words, "small"))
    return parts, bottom


def _seconds(frame: _Frame) -> Iterator[str]:
    """The axis of time."""
    for at in _ticks(frame.seconds, 12):
        yield line(frame.x(at), frame.bottom, frame.x(at), frame.bottom + 5, "axis")
        yield text(frame.x(at), frame.bottom + 18, f"{at:,.15g}", "small mid")
    yield text((LEFT + WIDTH - RIGHT) / 2, frame.bottom + 36, "seconds", "small mid")


def _scale(frame: _Frame) -> Iterator[str]:
    """The axis of jobs or slots, with a line across at each of its figures."""
    for value in _ticks(frame.most, 6):
        yield line(LEFT, round(frame.y(value), 1), WIDTH - RIGHT, round(frame.y(value), 1), "grid" if value else "axis")
        yield text(LEFT - 8, round(frame.y(value) + 4, 1), f"{value:,.15g}", "small end")


def _ticks(most: float, at_most: int) -> list[float]:
    """Round values from 0 to `most`, not more than about `at_most`."""
    rough = most / at_most
    magnitude = 10.0 ** floor(log10(rough))
    step = next(magnitude * factor for factor in (1, 2, 5, 10) if magnitude * factor >= rough * (1 - 1e-9))
    return [round(number * step, 9) for number in range(floor(most / step + 1e-9) + 1)]


def _thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[:: max(1, len(samples) // POINTS)]


def _fill(tenant: int) -> str:
    return f'fill="{COLOURS[tenant % len(COLOURS)]}" fill-opacity="{_opacity(tenant)}"'


def _stroke(tenant: int) -> str:
    return f'stroke="{COLOURS[tenant % len(COLOURS)]}" stroke-opacity="{_opacity(tenant)}"'


def _opacity(tenant: int) -> str:
    return ("1", ".65", ".4")[tenant // len(COLOURS) % 3]

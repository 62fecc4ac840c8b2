"""What a run leaves behind: counts and waits by tenant, samples at even steps, and which slot ran whose job when."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from jobs.simulator.scenario import Scenario

SAMPLES: Final = 2_000  # looks at the pool in a run; shares and the lines of a picture come from them
MOST_RUNS_KEPT: Final = 20_000  # more than a picture could show one by one


@dataclass(frozen=True, slots=True)
class Run:
    """One job on one slot; `end` may lie beyond the horizon."""

    slot: int
    tenant: int
    start: float
    end: float


@dataclass(slots=True)
class Tally:
    """What became of one tenant's jobs.

    `waits` are seconds from being posted to being started, one a job. A job that never started has waited until the
    horizon: leaving it out would show a tenant whose jobs never run as one that never waits.
    """

    submitted: int = 0
    started: int = 0
    done: int = 0
    waits: array[float] = field(default_factory=lambda: array("d"))
    first_start: float | None = None

    def start(self, submitted: float, now: float) -> None:
        """One of its jobs starts."""
        self.started += 1
        self.waits.append(now - submitted)
        self.first_start = now if self.first_start is None else self.first_start


@dataclass(frozen=True, slots=True)
class Sample:
    """The pool at one moment, by tenant: jobs running, jobs waiting, and how many of these hosts would take now."""

    at: float
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    runnable: tuple[int, ...]


@dataclass(slots=True)
class Outcome:
    """A whole run. `runs` holds the first MOST_RUNS_KEPT; `most_busy` counts slots, `most_waiting` jobs."""

    scenario: Scenario
    tallies: list[Tally]
    samples: list[Sample] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    most_busy: int = 0
    most_waiting: int = 0

    def keep(self, run: Run) -> None:
        """Remember a run for the picture, unless there are too many already."""
        if len(self.runs) < MOST_RUNS_KEPT:
            self.runs.append(run)


def moments(horizon: float) -> Iterator[float]:
    """When to look: halfway between even steps, never the moment at which jobs of equal length all end and start."""
    yield from ((number + 0.5) * horizon / SAMPLES for number in range(SAMPLES))
    yield inf

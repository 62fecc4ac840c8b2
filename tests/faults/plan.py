"""What goes wrong and when: a pure function of the length and the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """The faults; the value is what the table calls them."""

    KILL_PUBLISHER = "kill -9 publisher"
    KILL_BEAT = "kill -9 beat"
    KILL_SWEEPER = "kill -9 sweeper"
    KILL_WORKER = "kill -9 worker"
    KILL_EVENTS = "kill -9 events"
    KILL_WEB = "kill -9 web"
    KILL_ANY = "kill -9 any role"
    ZOMBIE = "worker stopped past its lease"
    CUT_CONNECTIONS = "worker's connections cut"
    FLUSH_REDIS = "Redis flushed"
    STOP_REDIS = "Redis stopped"
    STOP_BROKER = "broker out of reach"
    RESET_BROKER = "broker connections reset"
    PURGE_QUEUES = "queues purged"
    RESTART_POSTGRES = "PostgreSQL restarted"
    CRASH_POSTGRES = "PostgreSQL crashed"
    STOP_S3 = "S3 stopped"


# (shortest, longest) in seconds; the others are over at once. A zombie's is added to its lease.
LASTING: Final = {
    Kind.ZOMBIE: (2.0, 4.0),
    Kind.STOP_REDIS: (1.0, 4.0),
    Kind.STOP_BROKER: (1.0, 5.0),
    Kind.RESTART_POSTGRES: (0.0, 1.0),
    Kind.CRASH_POSTGRES: (0.0, 1.0),
    Kind.STOP_S3: (1.0, 4.0),
}
PAUSE: Final = (2.5, 5.0)  # seconds from the end of one fault to the begin of the next
SHORT_PAUSE: Final = (1.0, 2.0)  # for a plan that has little time


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `begin` seconds after the start of the run, lasting `seconds`; `draw` in [0, 1) chooses its victim."""

    kind: Kind
    begin: float
    seconds: float
    draw: float


def make_plan(
    seconds: float, *, seed: int, kinds: Sequence[Kind], lease_seconds: float, pause: tuple[float, float] = PAUSE
) -> list[Fault]:
    """Faults one after the other for `seconds`: every kind once in an order that the seed gives, then all again."""
    source = random.Random(seed)
    plan: list[Fault] = []
    at = source.uniform(0.5, 1.5)
    while True:
        for kind in source.sample(list(kinds), len(kinds)):
            shortest, longest = LASTING.get(kind, (0.0, 0.0))
            lasts = source.uniform(shortest, longest) + (lease_seconds if kind is Kind.ZOMBIE else 0.0)
            if at + lasts > seconds:
                return plan
            plan.append(Fault(kind, round(at, 2), round(lasts, 2), source.random()))
            at += lasts + source.uniform(*pause)

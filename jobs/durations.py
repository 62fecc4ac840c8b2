"""How long a tenant's jobs take, estimated from what is in flight at each look. Pure.

The share that is fair is a share of the slots' time, so a job is charged with the seconds it will take; these are known
only afterwards, and the tenant's last jobs are the best guess.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

FIRST_GUESS_SECONDS: Final = 1.0
HALF_LIFE_JOBS: Final = 32  # a tenant whose jobs change their length is known anew after about so many


@dataclass(frozen=True, slots=True)
class Load:
    """What a tenant has in flight at one moment; `elapsed` is how long its running jobs have run by now, summed up."""

    published: int = 0
    running: int = 0
    elapsed: float = 0.0

    @property
    def in_flight(self) -> int:
        return self.published + self.running


@dataclass(slots=True)
class _Record:
    seconds: float = 0.0
    jobs: float = 0.0

    def add(self, seconds: float, jobs: int) -> None:
        kept = 0.5 ** (jobs / HALF_LIFE_JOBS)
        self.seconds = self.seconds * kept + max(0.0, seconds)
        self.jobs = self.jobs * kept + jobs


_NOTHING: Final = Load()


class Durations:
    """`look` at what is in flight again and again, say what was `published` in between, and ask what to `expect`.

    Between two looks, the jobs that ended took together: the slot time that was used (running jobs x time), less what
    those that run now have used more than those that ran before.
    """

    def __init__(self) -> None:
        self._records: dict[Hashable, _Record] = {}
        self._all = _Record()
        self._last: Mapping[Hashable, Load] = {}
        self._published: dict[Hashable, int] = {}
        self._unsettled: dict[Hashable, float] = {}  # seconds of ended jobs, until a look sees how many these were
        self._at: float | None = None
        self._mean = FIRST_GUESS_SECONDS

    def look(self, loads: Mapping[Hashable, Load], now: float) -> None:
        """What is in flight at `now`, in seconds of any clock."""
        if self._at is not None:
            passed = max(0.0, now - self._at)
            for tenant in {**self._last, **loads}:
                self._settle(tenant, self._last.get(tenant, _NOTHING), loads.get(tenant, _NOTHING), passed)
        self._last, self._at = loads, now
        self._mean = self._mean_now()
        self._published.clear()
        self._records = {tenant: self._records[tenant] for tenant in self._records if self._records[tenant].jobs > 0.01}

    def published(self, tenant: Hashable) -> None:
        """One more job of the tenant is in flight since the last look."""
        self._published[tenant] = self._published.get(tenant, 0) + 1

    def expect(self, tenant: Hashable) -> float:
        """The seconds that the tenant's next job will keep a slot; the mean of all tenants while nothing is known."""
        load = self._last.get(tenant, _NOTHING)
        guess = max(
            self.mean(), load.elapsed / load.running if load.running else 0.0
        )  # none has ended, and they run on
        record = self._records.get(tenant, _UNKNOWN)
        return (record.seconds + guess) / (record.jobs + 1)

    def mean(self) -> float:
        """The seconds that a job of anybody keeps a slot: not less than those that run now have run on average."""
        return self._mean

    def _mean_now(self) -> float:
        """Once a look: it is asked for with each job that is chosen, and adds up all tenants."""
        running = sum(load.running for load in self._last.values())
        elapsed = sum(load.elapsed for load in self._last.values())
        return max(self._ended_mean(), elapsed / running if running else 0.0)

    def _ended_mean(self) -> float:
        return self._all.seconds / self._all.jobs if self._all.jobs else FIRST_GUESS_SECONDS

    def _settle(self, tenant: Hashable, before: Load, after: Load, passed: float) -> None:
        used = (before.running + after.running) / 2 * passed - (after.elapsed - before.elapsed)
        seconds = self._unsettled.pop(tenant, 0.0) + used
        ended = before.in_flight + self._published.get(tenant, 0) - after.in_flight
        if ended > 0:
            self._records.setdefault(tenant, _Record()).add(seconds, ended)
            self._all.add(max(0.0, seconds), ended)
        elif after.running:
            self._unsettled[tenant] = seconds


_UNKNOWN: Final = _Record()

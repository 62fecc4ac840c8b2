"""The pool in virtual time: discrete events, nothing sleeps, and the same scenario gives the same run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from math import inf

from jobs.simulator.arrivals import arrivals
from jobs.simulator.gates import HostGates
from jobs.simulator.orders import Order
from jobs.simulator.record import Outcome, Run, Sample, Tally, moments
from jobs.simulator.scenario import Scenario, SimulatedJob
from jobs.simulator.waiting import Waiting


def simulate(
    scenario: Scenario, order: Order, gates: HostGates, progress: Callable[[int], None] = lambda _: None
) -> Outcome:
    """Run the scenario until its horizon.

    `order` must ask the same `gates`, which hear from here of every start and end. `progress` is told of each sample
    taken, of SAMPLES in all.
    """
    return _Pool(scenario, order, gates).run(progress)


class _Pool:
    def __init__(self, scenario: Scenario, order: Order, gates: HostGates) -> None:
        self._scenario = scenario
        self._order = order
        self._gates = gates
        self._now = 0.0
        self._jobs = arrivals(scenario)
        self._next_job = next(self._jobs, None)
        self._free = list(range(scenario.slots))
        self._ends: list[tuple[float, int, int, SimulatedJob]] = []  # when, a number for ties, slot, job
        self._numbers = count()
        self._running = [0] * len(scenario.tenants)
        self._waiting = Waiting()
        self._outcome = Outcome(scenario, [Tally() for _ in scenario.tenants])

    def run(self, progress: Callable[[int], None]) -> Outcome:
        """Go from event to event; nothing changes between two of them, so any moment there can be looked at late."""
        horizon = self._scenario.horizon
        looks = moments(horizon)
        look = next(looks)
        while (event := self._next_event()) < horizon:
            look = self._look_until(event, look, looks, progress)
            self._happen(event)
        self._look_until(horizon, look, looks, progress)
        self._close(horizon)
        return self._outcome

    def _next_event(self) -> float:
        """When the next job is posted or ends, or a host opens for which a job and a slot wait."""
        posted = inf if self._next_job is None else self._next_job.submitted
        ended = self._ends[0][0] if self._ends else inf
        opened = self._gates.next_opening(self._waiting.hosts(), self._now) if self._free and self._waiting else inf
        return min(posted, ended, opened)

    def _happen(self, now: float) -> None:
        """All that happens at this moment: endings, then jobs posted, then starts."""
        self._now = now
        self._end_due()
        while self._next_job is not None and self._next_job.submitted <= now:
            self._submit(self._next_job)
            self._next_job = next(self._jobs, None)
        while self._free and (job := self._order.take(now)) is not None:
            self._start(job)
        busy = self._scenario.slots - len(self._free)
        self._outcome.most_busy = max(self._outcome.most_busy, busy)
        self._outcome.most_waiting = max(self._outcome.most_waiting, len(self._waiting))

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= self._now:
            self._end(*heapq.heappop(self._ends)[2:])

    def _end(self, slot: int, job: SimulatedJob) -> None:
        heapq.heappush(self._free, slot)
        self._running[job.tenant] -= 1
        self._outcome.tallies[job.tenant].done += 1
        self._gates.end(job.host)
        self._order.ended(job)

    def _submit(self, job: SimulatedJob) -> None:
        self._outcome.tallies[job.tenant].submitted += 1
        self._waiting.add(job)
        self._order.add(job)

    def _start(self, job: SimulatedJob) -> None:
        slot, end = heapq.heappop(self._free), self._now + job.seconds
        heapq.heappush(self._ends, (end, next(self._numbers), slot, job))
        self._running[job.tenant] += 1
        self._waiting.remove(job)
        self._gates.start(job.host, self._now)
        self._outcome.tallies[job.tenant].start(job.submitted, self._now)
        self._outcome.keep(Run(slot, job.tenant, self._now, end))

    def _look_until(self, event: float, look: float, looks: Iterator[float], progress: Callable[[int], None]) -> float:
        """Take the samples that are due before the event; returns when the next one is."""
        while look < event:
            self._outcome.samples.append(self._sample(look))
            progress(1)
            look = next(looks)
        return look

    def _sample(self, at: float) -> Sample:
        tenants = len(self._running)
        waiting = tuple(self._waiting.of(tenant) for tenant in range(tenants))
        runnable = tuple(self._waiting.runnable(tenants, self._gates, at))
        return Sample(at, tuple(self._running), waiting, runnable)

    def _close(self, horizon: float) -> None:
        """What ends at the horizon has ended; what waits has waited until then."""
        self._now = horizon
        self._end_due()
        for job in self._waiting:
            self._outcome.tallies[job.tenant].waits.append(horizon - job.submitted)

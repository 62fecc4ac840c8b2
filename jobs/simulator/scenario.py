"""What is simulated: a pool of slots, tenants with jobs to come, and their hosts. Times are seconds from the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from random import Random

from jobs.states import Priority


@dataclass(frozen=True, slots=True)
class Duration:
    """How long a job runs, in seconds.

    `fixed`: always `mean`. `uniform`: anything within `spread` x `mean` of it. `exponential`: many short, a few long.
    `lognormal`: most somewhat below the mean, a few far above; `spread` is the standard deviation of the logarithm.
    """

    mean: float
    distribution: str = "fixed"
    spread: float = 0.5

    def draw(self, random: Random) -> float:
        """One job's running time."""
        match self.distribution:
            case "uniform":
                drawn = self.mean * random.uniform(1.0 - self.spread, 1.0 + self.spread)
            case "exponential":
                drawn = random.expovariate(1.0 / self.mean)
            case "lognormal":
                drawn = self.mean * exp(random.gauss(-(self.spread**2) / 2.0, self.spread))
            case _:
                drawn = self.mean
        return max(drawn, self.mean / 1000.0)  # a job of no time at all would never let the clock go on


@dataclass(frozen=True, slots=True)
class Burst:
    """So many jobs posted at one moment."""

    at: float
    jobs: int


@dataclass(frozen=True, slots=True)
class TenantPlan:
    """A tenant and what it is going to post: bursts, and `flow` jobs a second, at random moments or evenly spaced."""

    name: str
    weight: int = 1
    max_running: int | None = None
    priority: Priority = Priority.NORMAL
    flow: float = 0.0
    evenly: bool = False
    bursts: tuple[Burst, ...] = ()
    hosts: tuple[str, ...] = ()
    duration: Duration | None = None

    def expected_jobs(self, horizon: float) -> float:
        """How many jobs it posts until then, on average."""
        return sum(burst.jobs for burst in self.bursts if burst.at < horizon) + self.flow * horizon


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What a host bears: `burst` requests at once and then `rate` a second, and `concurrency` at a time.

    None is no limit. It may not be called at all in the spans (from, until) of `blocked`, which are in order.
    """

    rate: float | None = None
    burst: int = 1
    concurrency: int | None = None
    blocked: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a run depends on: the same scenario gives the same run."""

    title: str
    slots: int
    horizon: float
    duration: Duration
    tenants: tuple[TenantPlan, ...]
    hosts: dict[str, HostPlan] = field(default_factory=dict)
    seed: int = 1

    def expected_jobs(self) -> float:
        """How many jobs are posted until the horizon, on average."""
        return sum(tenant.expected_jobs(self.horizon) for tenant in self.tenants)


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedJob:
    """A job of the simulation; `tenant` is an index into the scenario's tenants, `seconds` how long it will run.

    Equal only to itself: a burst is many jobs that differ in nothing.
    """

    tenant: int
    priority: Priority
    host: str
    submitted: float
    seconds: float

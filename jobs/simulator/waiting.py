"""The jobs that wait in a simulation, counted by host and tenant, whatever the order holds them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator

from jobs.simulator.gates import HostGates
from jobs.simulator.scenario import SimulatedJob


class Waiting:
    """The jobs that wait, in the order in which they were posted; a host is in it while a job waits for it."""

    def __init__(self) -> None:
        self._jobs: dict[SimulatedJob, None] = {}
        self._at_host: dict[str, Counter[int]] = {}
        self._of_tenant: Counter[int] = Counter()

    def add(self, job: SimulatedJob) -> None:
        """It waits from now on."""
        self._jobs[job] = None
        self._at_host.setdefault(job.host, Counter())[job.tenant] += 1
        self._of_tenant[job.tenant] += 1

    def remove(self, job: SimulatedJob) -> None:
        """It waits no longer. Raises KeyError if it did not: an order named the same job twice."""
        del self._jobs[job]
        tenants = self._at_host[job.host]
        tenants[job.tenant] -= 1
        if not tenants[job.tenant]:
            del tenants[job.tenant]
        if not tenants:
            del self._at_host[job.host]
        self._of_tenant[job.tenant] -= 1

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[SimulatedJob]:
        return iter(self._jobs)

    def hosts(self) -> Container[str]:
        """The hosts that jobs wait for."""
        return self._at_host

    def of(self, tenant: int) -> int:
        """How many jobs of the tenant wait."""
        return self._of_tenant[tenant]

    def runnable(self, tenants: int, gates: HostGates, now: float) -> list[int]:
        """By tenant, how many of its waiting jobs its hosts would take now if it were alone with them."""
        found = [0] * tenants
        for host, counts in self._at_host.items():
            room = gates.room(host, now)
            for tenant, jobs in counts.items():
                found[tenant] += int(min(room, jobs))
        return found

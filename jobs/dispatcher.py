"""Which jobs go to the bus next: the fair order among priorities, tenants and hosts is kept here and nowhere else.

The leading publisher has one `Dispatcher`. Its memory is a cache of rows: what is in flight is read in each pass, the
backlog is read by its heads, and a new leader starts with an empty one. What is lost with the old one, virtual times
and the fill of the hosts' buckets, is level again within seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from django.conf import settings

from jobs import backlog, hosts
from jobs.backlog import Candidate
from jobs.durations import Durations
from jobs.fairness import LEAST_SECONDS, FairOrder, Hungry, Share
from jobs.lanes import LaneReader
from jobs.pacing import Hold, Pacing
from tenants.models import Tenant

REFRESH_SECONDS: Final = 1.0  # how old limits of tenants and hosts, and the pool's size, may be
REWIND_SECONDS: Final = 30.0  # after which everything is read anew: a lost message's job comes back with an old time
MOST_READS: Final = 12  # of the backlog in one pass
AHEAD_SECONDS: Final = 0.5  # far more than it takes to notice a free slot and to fill it
MOST_BUFFERED: Final = 50_000
UNFINISHED_SECONDS: Final = 0.1  # a backlog of which nothing is due does not keep the publisher busy


class Dispatcher:
    """Chooses jobs in fair order; `choose` is one pass. All times are seconds since 1970 by the database's clock."""

    def __init__(self) -> None:
        self._durations = Durations()
        self.order: FairOrder[Candidate] = FairOrder(expected=self._durations.expect)
        self._reader = LaneReader(self.order)
        self._policies = hosts.Policies(hosts.default_limits())
        self._pacing = Pacing(self._policies)
        self._held = backlog.InFlight(0.0, {}, {}, None, None)
        self._slots = 0
        self._refresh_at = self._rewind_at = -math.inf
        self.room = 0  # in the window; what the last pass chose is taken off

    @property
    def now(self) -> float:
        """When the last pass began."""
        return self._held.now

    @property
    def held_hosts(self) -> Mapping[str, Hold]:
        """The hosts that may not go, and why."""
        return self._pacing.held

    def choose(self, limit: int) -> list[Candidate]:
        """Up to `limit` jobs in the order in which they should run, as many as the window has room for.

        They count as in flight from now on: send them, or `forget`. Raises django's database Error.
        """
        with backlog.reading():
            self._look()
            wanted = min(limit, self.room)
            chosen = self._choose(wanted) if wanted > 0 else []
        self.room -= len(chosen)
        return chosen

    def survey(self) -> None:
        """Look for lanes with work although the window has no room, which `choose` then leaves out."""
        if self.room <= 0:
            with backlog.reading():
                self._reader.find(self.now)

    def forget(self) -> None:
        """What was chosen was not sent, or rows came back behind our back: the next pass reads everything anew."""
        self.order.clear()
        self._reader.forget()
        self._rewind_at = -math.inf

    def seconds_until_work(self) -> float | None:
        """How soon a pass may find what the last one did not, because a host may go again, a backlog is large or lanes
        were not looked for; None when only a new job, or the end of one, can bring something."""
        if self._reader.unfinished:
            return UNFINISHED_SECONDS
        wakes = [wake for wake in (self._pacing.next_wake(), self._reader.scan_at) if wake is not None]
        return max(0.0, min(wakes) - self.now) if wakes else None

    def waits_for_an_end(self) -> bool:
        """Whether a due job may go as soon as one that is in flight has ended."""
        if self.room <= 0:
            return True
        if any(self.order.held_back(lane.tenant) == "tenant_limit" for lane in self.order.waiting()):
            return True
        return any(hold.until is None and self.order.waits_for(host) for host, hold in self._pacing.held.items())

    def _look(self) -> None:
        """Read what is in flight and, now and then, the limits; the room in the window follows."""
        seen = self._held
        self._held = held = backlog.in_flight(seen.oldest_message, seen.first_lease)
        if not self._rewind_at - REWIND_SECONDS <= held.now < self._rewind_at:  # or the clock was set back
            self.forget()
            self._held = held = backlog.in_flight()
            self._rewind_at = held.now + REWIND_SECONDS
        if not self._refresh_at - REFRESH_SECONDS <= held.now < self._refresh_at:
            self._refresh(held.now)
            self._refresh_at = held.now + REFRESH_SECONDS
        self._durations.look(held.tenants, held.now)
        self.order.set_in_flight({tenant: load.in_flight for tenant, load in held.tenants.items()})
        self._pacing.look(held.hosts, held.now)
        self._park()
        if settings.PUBLISH_WINDOW:
            self.room = settings.PUBLISH_WINDOW - held.published
        else:
            self.room = window(self._slots, self._durations.mean()) - held.published - held.running

    def _refresh(self, now: float) -> None:
        self._slots = backlog.living_slots()
        rows = Tenant.objects.values_list("pk", "weight", "max_running", "paused")
        self.order.set_tenants({str(pk): Share(weight, most, paused) for pk, weight, most, paused in rows})
        if (self._policies.default, self._policies.fingerprint) != (
            hosts.default_limits(),
            hosts.policies_fingerprint(),
        ):
            self._policies = hosts.load_policies()
        self._pacing.learn(self._policies, hosts.active_states(), now)
        if self.order.buffered() > MOST_BUFFERED:
            self.order.clear()
            self._reader.forget()

    def _park(self) -> None:
        held = self._pacing.held
        for host in [host for host in self.order.parked if host not in held]:
            self.order.unpark(host)
        for host in held:
            self.order.park(host)

    def _choose(self, wanted: int) -> list[Candidate]:
        self._reader.find(self.now)
        chosen: list[Candidate] = []
        reads = 0
        while len(chosen) < wanted and (job := self.order.pick()) is not None:
            if isinstance(job, Hungry):
                if reads == MOST_READS:
                    break
                reads += 1
                self._reader.read(wanted - len(chosen))
                continue
            chosen.append(job)
            self._durations.published(job.tenant_id)
            self._pacing.sent(job.host, self.now)
            if job.host in self._pacing.held:
                self.order.park(job.host)
        self._reader.end_pass(self.now, chosen)
        return chosen


def window(slots: int, job_seconds: float) -> int:
    """How many jobs may be published or running when no setting says so: the slots, and as many more as start within
    AHEAD_SECONDS, but at most twice the slots.

    What is published is out of order's reach, so a newcomer waits behind it: with long jobs a second round of them
    would be a whole job's time.
    """
    ahead = max(math.ceil(slots / 4), math.ceil(AHEAD_SECONDS * slots / max(job_seconds, LEAST_SECONDS)))
    return slots + min(slots, ahead)

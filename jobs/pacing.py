"""Which hosts may go now, as the publisher sees it. Pure: times are seconds by whatever clock the caller passes in.

What decides is the limiter that the worker asks just before it claims; this mirrors it, so that hardly any message is
sent which would be put back. A host is measured by the virtual scheduling of a leaky bucket (GCRA, ITU-T I.371): one
number a host says when its next request is due if all before it had kept the rate.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jobs.hosts import ActiveState, HostLimits, Policies

_KEPT_BUCKETS: Final = 4096  # more are kept only while they are not full


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a host waits, and until when if time alone ends it."""

    reason: str  # host_paused, host_blocked or host_rate
    until: float | None


class Pacing:
    """Holds back the hosts that may not go. Tell it of limits, of what is in flight and of each job that is sent."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._states: Mapping[str, ActiveState] = {}
        self._in_flight: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._held: dict[str, Hold] = {}
        self._wakes: list[tuple[float, str]] = []
        self._timeless: dict[str, None] = {}  # held without an end that time brings, and not by a person

    @property
    def held(self) -> Mapping[str, Hold]:
        """The hosts that may not go, and why."""
        return self._held

    def learn(self, policies: Policies, states: Mapping[str, ActiveState], now: float) -> None:
        """The limits and states as they are now."""
        self._policies, self._states = policies, states
        paused = [host for host, limits in policies.overrides.items() if limits.paused]
        for host in [*self._held, *paused, *states]:
            self._judge(host, now)

    def look(self, in_flight: Mapping[str, int], now: float) -> None:
        """How many jobs of each host are published or running at `now`; frees whoever may go again."""
        self._in_flight = dict(in_flight)
        while self._wakes and self._wakes[0][0] <= now:
            host = heapq.heappop(self._wakes)[1]
            if host in self._held:
                self._judge(host, now)
        for host in [*self._timeless, *in_flight]:
            self._judge(host, now)
        if len(self._due) > _KEPT_BUCKETS:
            self._due = {host: due for host, due in self._due.items() if due > now}

    def sent(self, host: str, now: float) -> None:
        """A request of the host was let go."""
        self._in_flight[host] = self._in_flight.get(host, 0) + 1
        self._due[host] = max(self._due.get(host, now), now) + 1 / self._rate(host)
        self._judge(host, now)

    def next_wake(self) -> float | None:
        """When a host that is held may go again at the earliest; None when none does by time alone."""
        while self._wakes and self._held.get(self._wakes[0][1], _GONE).until != self._wakes[0][0]:
            heapq.heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else None

    def _judge(self, host: str, now: float) -> None:
        before = self._held.get(host)
        hold = self._verdict(host, now)
        if hold == before:
            return
        self._timeless.pop(host, None)
        if hold is None:
            del self._held[host]
            return
        self._held[host] = hold
        if hold.until is not None:
            heapq.heappush(self._wakes, (hold.until, host))
        elif hold.reason == "host_rate":
            self._timeless[host] = None

    def _verdict(self, host: str, now: float) -> Hold | None:
        limits, state = self._policies.limits_of(host), self._states.get(host)
        if limits.paused:
            return Hold("host_paused", None)
        if state is not None and state.blocked_until is not None and state.blocked_until.timestamp() > now:
            return Hold("host_blocked", state.blocked_until.timestamp())
        free_at = self._due.get(host, 0.0) - (limits.burst - 1) / self._rate(host, limits)
        if free_at > now + _ROUNDING:
            return Hold("host_rate", free_at)
        if self._in_flight.get(host, 0) >= limits.concurrency:
            return Hold("host_rate", None)
        return None

    def _rate(self, host: str, limits: HostLimits | None = None) -> float:
        state = self._states.get(host)
        return (limits or self._policies.limits_of(host)).rate * (1.0 if state is None else state.pace)


_GONE: Final = Hold("", None)
_ROUNDING: Final = 1e-6  # of seconds since 1970 in a float

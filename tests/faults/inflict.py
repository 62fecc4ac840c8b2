"""Does to a running pool what the plan says."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import kombu
import psutil
import redis

from devstack.processes import signal_group
from jobs.routing import EVENTS_QUEUE, QUEUE_OF_PRIORITY, SWEEPER_QUEUE
from tests.faults.plan import Fault, Kind
from tests.faults.pool import Member, Pool
from tests.faults.proxy import Proxy
from tests.faults.servers import Servers

QUEUES: Final = (*QUEUE_OF_PRIORITY.values(), EVENTS_QUEUE, SWEEPER_QUEUE)
ROLE_OF: Final = {
    Kind.KILL_PUBLISHER: "publisher",
    Kind.KILL_BEAT: "beat",
    Kind.KILL_SWEEPER: "sweeper",
    Kind.KILL_WORKER: "worker",
    Kind.KILL_EVENTS: "events",
    Kind.KILL_WEB: "web",
}
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Inflicted:
    """A fault that happened; `begin` and `end` in Unix seconds, `pid` of its victim where it had one."""

    kind: Kind
    begin: float
    end: float
    pid: int | None = None


class Inflictor:
    """`broker` is the broker's own address; the roles reach it and PostgreSQL by the two roads."""

    def __init__(self, pool: Pool, servers: Servers, *, broker: str, broker_road: Proxy, database_road: Proxy) -> None:
        self._pool, self._servers, self._broker = pool, servers, broker
        self._broker_road, self._database_road = broker_road, database_road
        self.inflicted: list[Inflicted] = []

    def inflict(self, fault: Fault) -> None:
        """Begin the fault, wait for as long as it lasts, end it, and note it."""
        begin, victim = time.time(), self._victim(fault)
        end = self._begin(fault, victim)
        time.sleep(fault.seconds)
        end()
        pid = victim.pid if victim is not None and fault.kind in (Kind.ZOMBIE, Kind.CUT_CONNECTIONS) else None
        self.inflicted.append(Inflicted(fault.kind, begin, time.time(), pid))

    def _victim(self, fault: Fault) -> Member | None:
        """The chosen process; waits for one that is being started again."""
        kind = fault.kind
        role = ROLE_OF.get(kind, "worker" if kind in (Kind.ZOMBIE, Kind.CUT_CONNECTIONS) else "")
        if not role and kind is not Kind.KILL_ANY:
            return None
        while not (candidates := [one for one in self._pool.members if one.alive and role in ("", one.role)]):
            time.sleep(POLL_SECONDS)
        return candidates[int(fault.draw * len(candidates))]

    def _begin(self, fault: Fault, victim: Member | None) -> Callable[[], None]:
        """Starts the fault; the answer ends it."""
        match fault.kind:
            case Kind.STOP_REDIS | Kind.STOP_S3 | Kind.RESTART_POSTGRES | Kind.CRASH_POSTGRES as kind:
                return self._stop_server(kind)
            case Kind.STOP_BROKER:
                self._broker_road.cut()
                return self._broker_road.mend
            case Kind.RESET_BROKER:
                self._broker_road.reset()
            case Kind.FLUSH_REDIS:
                self._flush()
            case Kind.PURGE_QUEUES:
                purge(self._broker)
            case Kind.ZOMBIE if victim is not None:
                return _freeze(victim.pid)
            case Kind.CUT_CONNECTIONS if victim is not None:
                self._database_road.reset(local_ports(victim.pid, to=self._database_road.port))
            case _ if victim is not None:
                self._pool.kill(victim)
        return _nothing

    def _stop_server(self, kind: Kind) -> Callable[[], None]:
        servers = self._servers
        server = {Kind.STOP_REDIS: servers.redis, Kind.STOP_S3: servers.s3}.get(kind, servers.postgres)
        server.stop(signal.SIGQUIT if kind is Kind.CRASH_POSTGRES else None)  # its immediate shutdown
        return server.start

    def _flush(self) -> None:
        with redis.Redis.from_url(self._servers.settings["REDIS_URL"]) as client:
            client.flushall()


def _freeze(pid: int) -> Callable[[], None]:
    signal_group(pid, signal.SIGSTOP)
    return lambda: signal_group(pid, signal.SIGCONT)


def _nothing() -> None:
    """The end of a fault that was over at once."""


def local_ports(pid: int, *, to: int) -> list[int]:
    """The ports from which a process speaks to port `to`."""
    return [link.laddr.port for link in psutil.Process(pid).net_connections("tcp") if link.raddr[1:] == (to,)]


def purge(url: str, queues: Sequence[str] = QUEUES) -> None:
    """Empty the queues at the broker; those that are not there are made."""
    with kombu.Connection(url, connect_timeout=5) as link:
        for name in queues:
            queue = kombu.Queue(name, kombu.Exchange(name), routing_key=name, channel=link.default_channel)
            queue.declare()
            queue.purge()

"""Every role running on servers of its own, each within reach of a test that wants to break it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import psycopg

from devstack.layout import ROOT
from devstack.ports import LOOPBACK, Ports
from tests.faults.guard import Guard
from tests.faults.inflict import purge
from tests.faults.pool import Pool
from tests.faults.proxy import Proxy
from tests.faults.servers import Servers
from tests.faults.skew import wrong_clock
from tests.faults.target import Target

LEASE_SECONDS: Final = 4.0
HEARTBEAT_SECONDS: Final = 1.0
SWEEP_SECONDS: Final = 1.0
ROLE_SETTINGS: Final = {
    "LEASE_SECONDS": str(LEASE_SECONDS),
    "HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
    "SWEEP_SECONDS": str(SWEEP_SECONDS),
    "RETRY_BASE_SECONDS": "0.5",
    "RETRY_CAP_SECONDS": "4",
    "WEB_WORKERS": "1",
    "DEFAULT_HOST_RATE": "100000",
    "DEFAULT_HOST_BURST": "100000",
    "DEFAULT_HOST_CONCURRENCY": "1000",
    "ALLOWED_HOSTS": f"{LOOPBACK},localhost",
    "DEBUG": "false",
}
START_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.1


class NotReady(Exception):
    """The pool did not come up, or what was waited for did not happen; the logs in its folder say why."""


@dataclass(frozen=True, slots=True)
class Arena:
    """A running pool and what it stands on.

    `settings` reach the servers past the proxies, `environment` is the roles' own: they go by `broker_road` and
    `database_road`, so that either can be cut while a test still sees the rows.
    """

    settings: Mapping[str, str]
    environment: Mapping[str, str]
    servers: Servers
    target: Target
    pool: Pool
    broker: str
    broker_road: Proxy
    database_road: Proxy
    skewed: bool
    port: int
    key: str

    def post(self, query: str = "", **document: Any) -> uuid.UUID:
        """Post one job for the target, over the API; the answer is its id, its name at the target is in its tag."""
        name = uuid.uuid4().hex
        body = {"url": f"http://{self.target.address}/{name}?{query}", "tags": [name], **document}
        request = Request(f"http://{LOOPBACK}:{self.port}/api/v1/jobs", json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {self.key}")
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=15) as answer:
            return uuid.UUID(json.load(answer)["id"])

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the database answers, past the proxy."""
        with psycopg.connect(self.settings["DATABASE_URL"], autocommit=True) as link:
            cursor = link.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def count(self, state: str, jobs: Sequence[uuid.UUID]) -> int:
        """How many of `jobs` are in `state`; `final` stands for all three ends."""
        states = ["succeeded", "failed", "cancelled"] if state == "final" else [state]
        query = "SELECT count(*) FROM jobs_job WHERE id = ANY(%s) AND state = ANY(%s)"
        return int(self.rows(query, list(jobs), states)[0][0])

    def job(self, job: uuid.UUID, *columns: str) -> tuple[Any, ...]:
        """The named columns of a job."""
        return self.rows(f"SELECT {', '.join(columns)} FROM jobs_job WHERE id = %s", job)[0]

    def until(self, condition: Callable[[], bool], *, seconds: float, what: str) -> float:
        """Seconds until `condition` held. Raises NotReady after `seconds`."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                raise NotReady(f"after {seconds:.0f} s still not: {what}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def is_ready(self) -> bool:
        """Whether the web role answers and every worker process has made itself known."""
        wanted = sum(member.role == "worker" and not member.held for member in self.pool.members)
        living = "SELECT count(*) FROM jobs_workerprocess WHERE seen_at > now() - %s * interval '1 second'"
        return self._answers() and self.rows(living, LEASE_SECONDS)[0][0] == wanted

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://{LOOPBACK}:{self.port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def arena(
    roles: Sequence[str], folder: Path, *, amqp_url: str = "", skewed: bool = False, **settings: str
) -> Iterator[Arena]:
    """Start everything and wait until it works. RabbitMQ is the broker where `amqp_url` names one, else Redis.

    Data lie in `arena/` under `folder` while it runs, what an earlier one left is deleted, the logs stay. `skewed`
    gives the last process a wrong clock, where that can be had. `settings` are the roles'.

    Raises ServerFailed, NotReady.
    """
    shutil.rmtree(folder / "arena", ignore_errors=True)
    data, logs = folder / "arena" / "data", folder / "arena" / "logs"
    logs.mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        guard = stack.enter_context(Guard())
        servers = stack.enter_context(Servers(data, logs, guard.environment))
        target = stack.enter_context(Target())
        broker = stack.enter_context(own_vhost(amqp_url)) if amqp_url else servers.settings["BROKER_URL"]
        stack.enter_context(_clean(broker))
        broker_road = stack.enter_context(Proxy.to(broker))
        database_road = stack.enter_context(Proxy.to(servers.settings["DATABASE_URL"]))
        environment = {
            **servers.settings,
            **ROLE_SETTINGS,
            **guard.environment,
            "DATABASE_URL": database_road.instead_of(servers.settings["DATABASE_URL"]),
            "BROKER_URL": broker_road.instead_of(broker),
            "EGRESS_ALLOW": target.address,
            "PORT": str(Ports(data / "ports.json").choose("web")),
            **settings,
        }
        key = _prepare(environment)
        odd = wrong_clock(data) if skewed else {}
        pool = stack.enter_context(Pool(roles, environment, logs, odd=odd))
        made = Arena(
            settings=servers.settings,
            environment=environment,
            servers=servers,
            target=target,
            pool=pool,
            broker=broker,
            broker_road=broker_road,
            database_road=database_road,
            skewed=bool(odd),
            port=int(environment["PORT"]),
            key=key,
        )
        made.until(made.is_ready, seconds=START_SECONDS, what=f"ready; see {logs}")
        yield made


@contextmanager
def own_vhost(url: str) -> Iterator[str]:
    """The same RabbitMQ with a virtual host of its own, so that queues of the same names elsewhere are not touched;
    where rabbitmqctl cannot be used, the one in the URL."""
    name = f"faults-{uuid.uuid4().hex[:8]}"
    user = urlsplit(url).username or "guest"
    if not (_rabbitmqctl("add_vhost", name) and _rabbitmqctl("set_permissions", "-p", name, user, ".*", ".*", ".*")):
        yield url
        return
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        _rabbitmqctl("delete_vhost", name)


@contextmanager
def _clean(broker: str) -> Iterator[None]:
    purge(broker)
    yield
    purge(broker)


def _rabbitmqctl(*arguments: str) -> bool:
    try:
        return subprocess.run(["rabbitmqctl", "-q", *arguments], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


_PREPARE: Final = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", interactive=False, verbosity=0)
call_command("create_tenant", "faults", json=True)
"""


def _prepare(environment: Mapping[str, str]) -> str:
    """Make the tables and a tenant; the answer is its API key."""
    done = subprocess.run(
        [sys.executable, "-c", _PREPARE],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "settings", **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return str(json.loads(done.stdout)["api_key"])

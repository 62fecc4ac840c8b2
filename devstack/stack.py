"""One stack from start to stop: servers, database, roles, an API key and an admin login.

The process that runs it holds the lock of its data folder and writes dev.json; see `commands.py` for who starts it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from honcho.environ import parse_procfile

from devstack import demo_site
from devstack.api import Api
from devstack.console import note, step
from devstack.environment import (
    DEFAULT_WORKER_SLOTS,
    allow_egress_to,
    check_answers,
    make_plan,
    process_environment,
)
from devstack.layout import Layout, Secrets
from devstack.leftovers import heal
from devstack.logins import ensure_logins
from devstack.logs import last_lines
from devstack.management import manage, run_python
from devstack.ports import LOOPBACK, Ports
from devstack.postgres import ensure_database
from devstack.processes import ProcessRecord, end_leftovers, start_mark
from devstack.services import Service, ServiceFailed
from devstack.state import StackState
from devstack.supervisor import ChildSpec, Guard, Supervisor, now

MAX_START_FAILURES = 5
SERVICE_SECONDS = 60.0  # PostgreSQL may have a crash to recover from
READY_SECONDS = 90.0
ROLE_GRACE = 15.0  # a worker lets running attempts finish for 10 s and needs a moment to release the rest
POLL_SECONDS = 0.2
USUAL_WEB_PORT = 8000


class Stack:
    """The embedded servers and, after `start_roles`, the roles of the Procfile. `stop` ends whatever was started."""

    def __init__(self, layout: Layout, chosen: Mapping[str, str], *, echo: bool = False, durable: bool = True) -> None:
        self.layout = layout
        self.state = StackState(started_at=now(), stack_id=uuid.uuid4().hex, chosen=dict(chosen))
        self.supervisor = Supervisor(layout.logs, note, self._save, echo=echo)
        self.environment: dict[str, str] = {}
        self._durable = durable
        self._secrets = Secrets(layout.secrets)
        self._ports = Ports(layout.ports)
        self._guard: Guard | None = None

    async def start_services(self) -> None:
        """Ends what an earlier stack left behind, then starts the embedded servers and waits until all answer.

        Raises ServiceFailed.
        """
        heal(self.layout)
        self._become_supervisor()
        await asyncio.to_thread(check_answers, self.state.chosen)
        plan = make_plan(self.layout, self.state.chosen, self._ports, durable=self._durable)
        self._adopt(plan.settings)
        if plan.services:
            with step("start " + ", ".join(f"{service.name} on port {service.port}" for service in plan.services)):
                await asyncio.gather(*(self._start_service(service) for service in plan.services))
        await asyncio.to_thread(ensure_database, plan.settings["DATABASE_URL"])
        if "S3_ENDPOINT_URL" in self.state.chosen:
            await run_python(self.environment, "-m", "devstack.bucket")

    async def start_roles(self) -> None:
        """Brings the database up to date, starts the demo site and every role, and waits for `/readyz`.

        A stack that does not get ready keeps running, so that its logs can be read; `state.phase` says so.
        Raises ManagementFailed when the database cannot be migrated.
        """
        self._start_demo_site()
        port = self._web_port()
        self.state.base_url = f"http://{LOOPBACK}:{port}"
        self.state.admin_url = f"{self.state.base_url}/admin/"
        self.environment |= {"PORT": str(port), "DATA_DIR": str(self.layout.data)}
        with step("migrate the database"):
            await manage(self.environment, "migrate", "--noinput", "--verbosity", "0")
        roles = parse_procfile(self.layout.procfile.read_text(encoding="utf-8")).processes
        for name, command in roles.items():
            environment = {**self.environment, "DEV_ROLE": name}
            shell = ["/bin/sh", "-c", command]
            self.supervisor.start(
                ChildSpec(name, "role", shell, environment, ROLE_GRACE, port=port if name == "web" else None)
            )
        with step(f"start {', '.join(roles)}"):
            problem = await self._wait_until_ready()
        if problem:
            self._set_phase("unready")
            note(self._explain_unready(problem))
            return
        with step("check the API key and the admin login"):
            logins = await ensure_logins(self.state.base_url, self.state.demo_site, self._secrets, self.environment)
            self.state.tenant, self.state.api_key = logins.tenant, logins.api_key
            self.state.admin_user, self.state.admin_password = logins.admin_user, logins.admin_password
        self._set_phase("ready")

    async def stop(self) -> None:
        self._set_phase("stopping")
        if self.supervisor.children:
            with step("stop everything"):
                await self.supervisor.stop()
        end_leftovers([], self.state.stack_id)
        self.layout.state.unlink(missing_ok=True)
        if self._guard is not None:
            self._guard.dismiss()

    def _become_supervisor(self) -> None:
        pid = os.getpid()
        record = ProcessRecord("supervisor", "supervisor", pid, start_mark(pid) or "", now())
        self.state.processes = [record]
        self._save()
        self._guard = Guard(self.layout.state, record)

    def _adopt(self, settings: Mapping[str, str]) -> None:
        self.state.environment = dict(settings)
        self.environment = process_environment(os.environ, settings, self.state.stack_id)
        self.state.database_url = settings["DATABASE_URL"]
        self.state.redis_url = settings["REDIS_URL"]
        self.state.broker_url = settings["BROKER_URL"]
        self.state.s3_endpoint = settings["S3_ENDPOINT_URL"]
        slots = settings.get("WORKER_SLOTS", "")
        self.state.worker_slots = int(slots) if slots.isdecimal() else DEFAULT_WORKER_SLOTS
        self._save()

    async def _start_service(self, service: Service) -> None:
        await asyncio.to_thread(service.prepare)
        child = self.supervisor.start(service.spec(self.environment))
        deadline = time.monotonic() + SERVICE_SECONDS
        while not await asyncio.to_thread(service.is_ready):
            if time.monotonic() > deadline or child.failures >= MAX_START_FAILURES:
                raise ServiceFailed(_with_log(f"{service.name} does not answer", child.log.path))
            await asyncio.sleep(POLL_SECONDS)

    def _start_demo_site(self) -> None:
        port = self._ports.choose("demo-site")
        command = [sys.executable, "-m", "devstack.demo_site", str(port)]
        self.supervisor.start(ChildSpec(demo_site.NAME, "service", command, self.environment, 2.0, port=port))
        self.state.demo_site = f"http://{LOOPBACK}:{port}"
        self._adopt(allow_egress_to(self.state.environment, f"{LOOPBACK}:{port}"))

    def _web_port(self) -> int:
        text = os.environ.get("PORT", "")
        wanted = int(text) if text.isdecimal() else None
        port = self._ports.choose("web", USUAL_WEB_PORT, wanted=wanted)
        if port != (wanted or port):
            note(f"!! port {wanted} is taken: the web role listens on {port}")
        return port

    async def _wait_until_ready(self) -> str:
        """Empty once `/readyz` answers 200, else why it does not by the end of READY_SECONDS, or why it never will."""
        deadline = time.monotonic() + READY_SECONDS
        with Api(self.state.base_url) as api:
            while problem := await asyncio.to_thread(api.why_unready):
                hopeless = any(child.failures >= MAX_START_FAILURES for child in self.supervisor.children)
                if hopeless or time.monotonic() > deadline:
                    return problem
                await asyncio.sleep(POLL_SECONDS)
        return ""

    def _explain_unready(self, problem: str) -> str:
        """Names the process that keeps failing, with its last lines; without one, the web role's."""
        failing = max(self.supervisor.children, key=lambda child: child.failures)
        name = failing.spec.name if failing.failures else "web"
        what = f"{self.state.base_url}/readyz does not answer 200: {problem}"
        return _with_log(what, self.layout.logs / f"{name}.log")

    def _set_phase(self, phase: str) -> None:
        self.state.phase = phase
        self._save()

    def _save(self) -> None:
        own = [record for record in self.state.processes if record.kind == "supervisor"]
        self.state.processes = [*own, *self.supervisor.records()]
        self.state.save(self.layout.state)


def _with_log(what: str, path: Path) -> str:
    lines = "\n".join(f"    {line}" for line in last_lines(path, 15)) or "    (empty)"
    return f"\n{what}\nThe end of {path}:\n{lines}\nAll logs are in {path.parent}."

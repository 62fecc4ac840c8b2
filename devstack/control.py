"""Finding and stopping the stack of a data folder: `./dev status` and `./dev down`.

Standard library only, and so is all that is imported here: both run on the bare Python of the machine, without `.venv`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from devstack import arguments as takes
from devstack import state
from devstack.console import note, say, step
from devstack.failures import NotStarted
from devstack.layout import Layout, is_running
from devstack.leftovers import heal, wipe
from devstack.processes import ProcessRecord
from devstack.state import StackState

STOP_SECONDS = 60.0
POLL_SECONDS = 0.1
STOPPED, ABANDONED = "stopped", "abandoned"  # phases of a stack without supervisor, beside those in StackState


def status_command(arguments: Sequence[str]) -> int:
    options = takes.status().parse_args(arguments)
    found = report(Layout.of(os.environ))
    if options.json:
        print(json.dumps(found))
    else:
        say(_as_text(found))
    return 0 if found["running"] else 1


def down_command(arguments: Sequence[str]) -> int:
    down(Layout.of(os.environ), delete_data=takes.down().parse_args(arguments).wipe)
    return 0


def load_living(layout: Layout) -> StackState | None:
    """The state of the stack that runs; None when none does, or when its file is still that of one that was killed."""
    current = state.load(layout.state)
    supervisor = current.supervisor if current is not None else None
    return current if supervisor is not None and supervisor.is_alive() else None


def down(layout: Layout, *, why: str = "", delete_data: bool = False) -> None:
    """Stops the stack, or what is left of one, and deletes its data if asked to. Raises NotStarted."""
    current = state.load(layout.state)
    if is_running(layout):
        supervisor = current.supervisor if current is not None else None
        if supervisor is None or not supervisor.is_alive():
            raise NotStarted(f"{layout.lock} is held by a process that {layout.state} does not name; try again.")
        with step(f"stop the stack{why}"):
            _stop(layout, supervisor)
    elif current is not None:
        heal(layout)
    else:
        note("ok nothing runs")
    if delete_data:
        wipe(layout)
        note(f"ok delete the data in {layout.data}")


def report(layout: Layout) -> dict[str, Any]:
    """What `status --json` prints; `running` says whether everything does."""
    current = state.load(layout.state)
    if current is None:
        return {"running": False, "phase": STOPPED, "roles": {}, "processes": []}
    alive = [record for record in current.processes if record.is_alive()]
    roles = {name: [record.pid for record in alive if record.name == name] for name in current.roles}
    complete = is_running(layout) and current.phase == "ready" and all(roles.values())
    return {
        "running": complete and len(alive) == len(current.processes),
        "phase": _phase(layout, current, alive),
        "base_url": current.base_url,
        "since": current.started_at,
        "roles": roles,
        "processes": [asdict(record) for record in alive],
    }


def _phase(layout: Layout, current: StackState, alive: Sequence[ProcessRecord]) -> str:
    """As recorded while the supervisor lives; without it, whether it left processes behind."""
    if is_running(layout):
        return current.phase
    return ABANDONED if alive else STOPPED


def _as_text(found: dict[str, Any]) -> str:
    if not found["processes"]:
        return "Nothing runs. ./dev up starts it."
    lines = [f"{found['phase']}: {found['base_url']}", f"{'process':<12}{'pid':>8}{'port':>7}  since"]
    for process in found["processes"]:
        since = datetime.fromisoformat(process["since"])
        age = (datetime.now(UTC) - since).total_seconds()
        lines.append(
            f"{process['name']:<12}{process['pid']:>8}{process['port'] or '-':>7}  {process['since']} ({age:,.0f} s)"
        )
    lines += [f"{name:<12}{'not running':>15}" for name, pids in found["roles"].items() if not pids]
    if found["phase"] == ABANDONED:
        lines.append("The supervisor was killed. ./dev down ends these processes, ./dev up starts anew.")
    return "\n".join(lines)


def _stop(layout: Layout, supervisor: ProcessRecord) -> None:
    os.kill(supervisor.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_running(layout):
        if time.monotonic() > deadline:
            os.kill(supervisor.pid, signal.SIGKILL)
            heal(layout)
            return
        time.sleep(POLL_SECONDS)

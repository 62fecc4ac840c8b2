"""Starting, finding and stopping the stack of a data folder: what stands behind `./dev up`, `status` and `down`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from devstack import state
from devstack.console import note, say
from devstack.environment import chosen_settings
from devstack.layout import ROOT, Layout, Lock, is_running
from devstack.leftovers import heal, wipe
from devstack.processes import ProcessRecord
from devstack.running import run, run_up
from devstack.stack import Stack
from devstack.state import StackState

START_SECONDS = 240.0  # all of it: servers, migrations, roles
STOP_SECONDS = 60.0
LOCK_SECONDS = 2.0
POLL_SECONDS = 0.1
STOPPED, ABANDONED = "stopped", "abandoned"  # phases of a stack without supervisor, beside those in StackState


class NotStarted(Exception):
    """The stack did not come up; what it printed says why."""


def take_lock(layout: Layout) -> Lock | None:
    """The lock of the data folder, or None when a stack runs there. Others probe it for an instant: hence the tries."""
    layout.create()
    lock = Lock(layout.lock)
    deadline = time.monotonic() + LOCK_SECONDS
    while not lock.take():
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_SECONDS)
    return lock


def up_in_this_process(layout: Layout, environ: Mapping[str, str], *, quiet: bool) -> int:
    """Runs the stack in this process until a signal. Exit code 0 also when another process runs it already.

    `quiet` leaves out what `up --detach` does not show either: the lines of the processes, and how to reach them.
    """
    lock = take_lock(layout)
    if lock is None:
        return tell_that_it_runs(layout, environ)
    stack = Stack(layout, chosen_settings(environ), echo=not quiet)
    return run(stack, run_up(stack, lambda: None if quiet else say(summary(stack.state))), when_stopped=0)


def up_detached(layout: Layout, environ: Mapping[str, str]) -> StackState:
    """The state of a stack that answers: the running one, restarted if it has other settings, or a new one.

    Raises NotStarted.
    """
    layout.create()
    running = load_living(layout)
    if running is not None:
        changed = changed_settings(running, environ)
        if not changed:
            return wait_until_ready(layout, None)
        note(f"ok restart the running stack: {', '.join(changed)} changed")
        down(layout)
        environ = {**environ, **running.chosen, **chosen_settings(environ)}
    return wait_until_ready(layout, _spawn(layout, environ))


def tell_that_it_runs(layout: Layout, environ: Mapping[str, str]) -> int:
    running = wait_until_ready(layout, None)
    say(f"The stack runs already.\n{summary(running)}")
    changed = changed_settings(running, environ)
    if changed:
        say(f"It has other values of {', '.join(changed)}: ./dev up --detach restarts it with yours.")
    return 0


def wait_until_ready(layout: Layout, process: subprocess.Popen[bytes] | None) -> StackState:
    """Waits for `/readyz` of the stack that runs, or of the one that `process` starts, whose steps are shown.

    Raises NotStarted.
    """
    steps = _Tail(layout.logs / "supervisor.log") if process is not None else None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        current = load_living(layout)
        if steps is not None:
            steps.show()
        if current is not None and current.phase == "ready":
            return current
        starting = process is not None and process.poll() is None
        if current is not None and current.phase == "unready":
            raise NotStarted("The stack runs but is not ready. ./dev status shows what runs, ./dev down stops it.")
        if not (starting or is_running(layout)):
            raise NotStarted("The stack was not started; the reason stands above.")
        time.sleep(POLL_SECONDS)
    raise NotStarted(f"The stack did not get ready within {START_SECONDS:.0f} s; see {layout.logs}.")


def load_living(layout: Layout) -> StackState | None:
    """The state of the stack that runs; None when none does, or when its file is still that of one that was killed."""
    current = state.load(layout.state)
    supervisor = current.supervisor if current is not None else None
    return current if supervisor is not None and supervisor.is_alive() else None


def down(layout: Layout, *, delete_data: bool = False) -> None:
    """Stops the stack, or what is left of one, and deletes its data if asked to."""
    current = state.load(layout.state)
    if is_running(layout):
        supervisor = current.supervisor if current is not None else None
        if supervisor is None or not supervisor.is_alive():
            raise NotStarted(f"{layout.lock} is held by a process that {layout.state} does not name; try again.")
        _stop(layout, supervisor)
        note("ok stop the stack")
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


def changed_settings(running: StackState, environ: Mapping[str, str]) -> list[str]:
    """Settings that the caller's environment gives and the running stack has otherwise; one not set changes nothing."""
    return [name for name, value in chosen_settings(environ).items() if running.chosen.get(name) != value]


def summary(current: StackState) -> str:
    return (
        f"\n  API      {current.base_url}/api/v1\n  API key  {current.api_key}\n"
        f"  admin    {current.admin_url} as {current.admin_user} / {current.admin_password}\n"
    )


def _spawn(layout: Layout, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    log = layout.logs / "supervisor.log"
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "devstack", "supervise"],
            env=dict(environ),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _stop(layout: Layout, supervisor: ProcessRecord) -> None:
    os.kill(supervisor.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_running(layout):
        if time.monotonic() > deadline:
            os.kill(supervisor.pid, signal.SIGKILL)
            heal(layout)
            return
        time.sleep(POLL_SECONDS)


class _Tail:
    """Shows what a growing file got since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def show(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._position)
            piece = file.read()
        complete = piece[: piece.rfind(b"\n") + 1]
        self._position += len(complete)
        if complete:
            note(complete.decode(errors="replace"), end="")

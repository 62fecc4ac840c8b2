"""Starting the stack of a data folder: what stands behind `./dev up`. `control.py` finds and stops it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from devstack.console import note, say
from devstack.control import down, load_living
from devstack.environment import chosen_settings
from devstack.failures import NotStarted
from devstack.layout import ROOT, Layout, Lock, is_running
from devstack.preflight import check_servers, check_settings
from devstack.running import run, run_up
from devstack.stack import Stack
from devstack.state import StackState
from devstack.turns import taking_turns

START_SECONDS = 240.0  # all of it: servers, migrations, roles
LOCK_SECONDS = 2.0
POLL_SECONDS = 0.1


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

    `quiet` leaves out what `up --detach`, which calls it so, does or shows itself: the check of the settings, the lines
    of the processes, and how to reach them. Raises BadSettings.
    """
    lock = take_lock(layout)
    if lock is None:
        return tell_that_it_runs(layout, environ)
    chosen = chosen_settings(environ)
    if not quiet:
        check_settings(chosen, environ)
    stack = Stack(layout, chosen, echo=not quiet)
    return run(stack, run_up(stack, lambda: None if quiet else say(summary(stack.state))), when_stopped=0)


def up_detached(layout: Layout, environ: Mapping[str, str]) -> StackState:
    """The state of a stack that answers: the running one, restarted if it has other settings, or a new one.

    Raises NotStarted, or BadSettings before anything was stopped.
    """
    layout.create()
    # Two that start at once would both find nothing, and one would take the other's log away.
    with taking_turns(layout.data, "another ./dev that starts this stack"):
        running = load_living(layout)
        if running is None:
            check_settings(chosen_settings(environ), environ)
            return wait_until_ready(layout, _spawn(layout, environ))
        changed = changed_settings(running, environ)
        if not changed:
            ready = wait_until_ready(layout, None)
            note("ok the stack runs already")
            return ready
        return _restart(layout, {**environ, **running.chosen, **chosen_settings(environ)}, changed)


def _restart(layout: Layout, environ: Mapping[str, str], changed: Sequence[str]) -> StackState:
    """Stops the stack only when nothing is left that could keep it from starting with `environ`."""
    chosen = chosen_settings(environ)
    left_alone = "The running stack was left alone."
    check_settings(chosen, environ, left_alone)
    check_servers(chosen, environ, left_alone)
    down(layout, why=f", to start it with other values of {', '.join(changed)}")
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


class _Tail:
    """Shows what a growing file got since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def show(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                piece = file.read()
        except FileNotFoundError:  # ./dev down --wipe meanwhile: nothing yet
            return
        complete = piece[: piece.rfind(b"\n") + 1]
        self._position += len(complete)
        if complete:
            note(complete.decode(errors="replace"), end="")

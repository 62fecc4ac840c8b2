"""Running a stack in this process until a signal, or for as long as one command runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from devstack.api import ApiFailed
from devstack.console import note
from devstack.layout import ROOT
from devstack.management import ManagementFailed
from devstack.ports import NoFreePort
from devstack.services import ServiceFailed
from devstack.stack import Stack

COMMAND_GRACE = 15.0  # seconds that a stopped command may take to end
IMPATIENCE_SECONDS = 1.0  # signals closer together are one: timeout(1) and shells send theirs twice


async def run_up(stack: Stack, ready: Callable[[], None]) -> int:
    """Runs the whole stack until it is cancelled; calls `ready` once it answers."""
    await stack.start_services()
    await stack.start_roles()
    if stack.state.phase == "ready":
        ready()
    await asyncio.Event().wait()
    return 0


async def run_with_services(stack: Stack, command: Sequence[str]) -> int:
    """Runs one command on the terminal with the embedded servers up; its exit code."""
    await stack.start_services()
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=stack.environment)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await _end(process)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """Lets a command end on the Ctrl-C that the terminal sent it too; without a terminal it gets a SIGTERM."""
    if not sys.stdin.isatty():
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), COMMAND_GRACE)
    except TimeoutError:
        process.kill()


def run(stack: Stack, body: Coroutine[Any, Any, int], *, when_stopped: int) -> int:
    """Runs `body`, stops the stack whatever happens, and returns the exit code: 1 when it could not be set up.

    The first SIGINT, SIGTERM or SIGHUP stops in order and makes the exit code `when_stopped`; a second one kills.
    """
    return asyncio.run(_run(stack, body, when_stopped))


async def _run(stack: Stack, body: Coroutine[Any, Any, int], when_stopped: int) -> int:
    task = asyncio.create_task(body)
    loop = asyncio.get_running_loop()

    first: float | None = None

    def on_signal() -> None:
        nonlocal first
        if first is None:
            first = loop.time()
            task.cancel()
        elif loop.time() - first > IMPATIENCE_SECONDS:
            stack.supervisor.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        return when_stopped
    except (ServiceFailed, ManagementFailed, ApiFailed, NoFreePort) as error:
        note(f"\n{error}")
        return 1
    finally:
        await stack.stop()

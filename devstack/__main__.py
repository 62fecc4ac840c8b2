"""The commands of `./dev`, run inside .venv by `bootstrap.py`. Exit code 2: it could not be done."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from devstack import arguments as takes
from devstack.commands import summary, take_lock, up_detached, up_in_this_process
from devstack.console import say
from devstack.control import down_command, load_living, status_command
from devstack.demo import run_demo
from devstack.environment import chosen_settings, process_environment
from devstack.failures import DevFailed
from devstack.layout import ROOT, Layout, is_running
from devstack.leftovers import delete_databases, heal
from devstack.preflight import check_settings
from devstack.running import run, run_with_services
from devstack.stack import Stack

CANNOT = 2
INTERRUPTED = 130


def demo_command(arguments: Sequence[str]) -> int:
    urls = takes.demo().parse_args(arguments).urls
    layout = Layout.of(os.environ)
    return run_demo(layout, up_detached(layout, os.environ), urls)


def up_command(arguments: Sequence[str]) -> int:
    layout = Layout.of(os.environ)
    if not takes.up().parse_args(arguments).detach:
        return up_in_this_process(layout, os.environ, quiet=False)
    say(summary(up_detached(layout, os.environ)))
    return 0


def supervise_command(_: Sequence[str]) -> int:
    """What `up --detach` leaves running in the background."""
    return up_in_this_process(Layout.of(os.environ), os.environ, quiet=True)


def test_command(arguments: Sequence[str]) -> int:
    return _on_fresh_services("test", [sys.executable, "-m", "pytest", *arguments])


def bench_command(arguments: Sequence[str]) -> int:
    if not (ROOT / "bench").is_dir():
        print("dev: there are no benchmarks yet (no folder bench/).", file=sys.stderr)
        return CANNOT
    return _on_fresh_services("bench", [sys.executable, "-m", "bench", *arguments])


def manage_command(arguments: Sequence[str]) -> int:
    """`manage.py` with the environment of the stack; embedded servers are started for as long as it runs if none do."""
    layout = Layout.of(os.environ)
    command = [sys.executable, "manage.py", *arguments]
    lock = None if is_running(layout) else take_lock(layout)
    if lock is None:
        running = load_living(layout)
        settings = {**running.environment, **chosen_settings(os.environ)} if running is not None else {}
        os.execve(command[0], command, process_environment(os.environ, settings, ""))  # noqa: S606
    chosen = chosen_settings(os.environ)
    check_settings(chosen, os.environ)
    stack = Stack(layout, chosen)
    return run(stack, run_with_services(stack, command), when_stopped=INTERRUPTED)


def _on_fresh_services(kind: str, command: Sequence[str]) -> int:
    """Runs a command on embedded servers of its own, which start empty and share nothing with a running stack."""
    layout = Layout.of(os.environ, kind)
    lock = take_lock(layout)
    if lock is None:
        print(f"dev: another ./dev {kind} runs in {layout.data}. Wait for it, or set DEV_DATA_DIR.", file=sys.stderr)
        return CANNOT
    chosen = chosen_settings(os.environ)
    check_settings(chosen, os.environ)
    heal(layout)
    delete_databases(layout)
    stack = Stack(layout, chosen, durable=kind != "test")
    return run(stack, run_with_services(stack, command), when_stopped=INTERRUPTED)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "demo": demo_command,
    "up": up_command,
    "supervise": supervise_command,
    "status": status_command,
    "down": down_command,
    "test": test_command,
    "bench": bench_command,
    "manage": manage_command,
}


def main(arguments: Sequence[str]) -> int:
    try:
        return COMMANDS[arguments[0]](arguments[1:])
    except DevFailed as error:
        print(f"dev: {error}", file=sys.stderr)
        return error.exit_code
    except PermissionError as error:
        print(f"dev: {error}. Was this data folder made by another user? Run ./dev as that one.", file=sys.stderr)
        return CANNOT
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

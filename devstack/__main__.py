"""The commands of `./dev`, run inside .venv by `bootstrap.py`. Exit code 2: it could not be done."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from devstack.commands import (
    ABANDONED,
    NotStarted,
    down,
    load_living,
    report,
    summary,
    take_lock,
    up_detached,
    up_in_this_process,
)
from devstack.console import say
from devstack.demo import run_demo
from devstack.environment import chosen_settings, process_environment
from devstack.layout import ROOT, Layout, is_running
from devstack.leftovers import delete_databases, heal
from devstack.ports import NoFreePort
from devstack.running import run, run_with_services
from devstack.stack import Stack

CANNOT = 2
INTERRUPTED = 130


def demo_command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("./dev demo", description="Runs real jobs through the whole stack.")
    parser.add_argument("urls", nargs="*", metavar="URL", help="what to fetch; without any, the built-in demo site")
    options = parser.parse_args(arguments)
    layout = Layout.of(os.environ)
    return run_demo(layout, up_detached(layout, os.environ), options.urls)


def up_command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("./dev up", description="Starts every role of the Procfile on embedded services.")
    parser.add_argument("--detach", action="store_true", help="return once the API answers; ./dev down stops it")
    options = parser.parse_args(arguments)
    layout = Layout.of(os.environ)
    if not options.detach:
        return up_in_this_process(layout, os.environ, quiet=False)
    if is_running(layout):
        say("The stack runs already.")
    say(summary(up_detached(layout, os.environ)))
    return 0


def supervise_command(_: Sequence[str]) -> int:
    """What `up --detach` leaves running in the background."""
    return up_in_this_process(Layout.of(os.environ), os.environ, quiet=True)


def status_command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("./dev status", description="What runs, on which port, since when.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    found = report(Layout.of(os.environ))
    if options.json:
        print(json.dumps(found))
    else:
        say(_as_text(found))
    return 0 if found["running"] else 1


def down_command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("./dev down", description="Stops every process of the stack.")
    parser.add_argument("--wipe", action="store_true", help="also delete the database, the results and the logs")
    down(Layout.of(os.environ), delete_data=parser.parse_args(arguments).wipe)
    return 0


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
    stack = Stack(layout, chosen_settings(os.environ))
    return run(stack, run_with_services(stack, command), when_stopped=INTERRUPTED)


def _on_fresh_services(kind: str, command: Sequence[str]) -> int:
    """Runs a command on embedded servers of its own, which start empty and share nothing with a running stack."""
    layout = Layout.of(os.environ, kind)
    lock = take_lock(layout)
    if lock is None:
        print(f"dev: another ./dev {kind} runs in {layout.data}. Wait for it, or set DEV_DATA_DIR.", file=sys.stderr)
        return CANNOT
    heal(layout)
    delete_databases(layout)
    stack = Stack(layout, chosen_settings(os.environ), durable=kind != "test")
    return run(stack, run_with_services(stack, command), when_stopped=INTERRUPTED)


def _as_text(found: dict[str, object]) -> str:
    processes = found["processes"]
    if not isinstance(processes, list) or not processes:
        return "Nothing runs. ./dev up starts it."
    lines = [f"{found['phase']}: {found['base_url']}", f"{'process':<12}{'pid':>8}{'port':>7}  since"]
    for process in processes:
        since = datetime.fromisoformat(process["since"])
        age = (datetime.now(UTC) - since).total_seconds()
        lines.append(
            f"{process['name']:<12}{process['pid']:>8}{process['port'] or '-':>7}  {process['since']} ({age:,.0f} s)"
        )
    roles = found["roles"]
    if isinstance(roles, dict):
        lines += [f"{name:<12}{'not running':>15}" for name, pids in roles.items() if not pids]
    if found["phase"] == ABANDONED:
        lines.append("The supervisor was killed. ./dev down ends these processes, ./dev up starts anew.")
    return "\n".join(lines)


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
    except (NotStarted, NoFreePort) as error:
        print(f"dev: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"dev: {error}. Was this data folder made by another user? Run ./dev as that one.", file=sys.stderr)
        return CANNOT
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A whole stack by the commands of `./dev`, with embedded servers and a stand-in for the roles.

The roles are stand-ins so that these tests take seconds; `tests/integration` runs the real ones.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from devstack.bootstrap import BARE_COMMANDS
from devstack.control import load_living
from devstack.environment import SETTING_NAMES
from devstack.layout import Layout
from devstack.processes import STACK_ID, start_mark

ROOT = Path(__file__).resolve().parents[2]
# Answers 200 to whatever it is asked: /readyz, and the check of the API key.
WEB = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Dev:
    """The commands of `./dev` on one data folder."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "my data"
        (folder / "web.py").write_text(WEB, encoding="utf-8")
        procfile = folder / "Procfile"
        procfile.write_text(f"web: exec python '{folder}/web.py' $PORT\nworker: exec sleep 600\n", encoding="utf-8")
        inherited = {
            name: value for name, value in os.environ.items() if name not in (*SETTING_NAMES, STACK_ID, "PORT")
        }
        self.environment = {**inherited, "DEV_DATA_DIR": str(self.data), "DEV_PROCFILE": str(procfile)}
        # The stand-in knows every key, so that none has to be made.
        self.data.mkdir()
        (self.data / "secrets.json").write_text('{"api_key": "kept"}', encoding="utf-8")

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        module = "devstack.bootstrap" if arguments[0] in BARE_COMMANDS else "devstack"  # as ./dev does
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env={**self.environment, **environment}, capture_output=True, text=True, timeout=120
        )

    def up(self, **environment: str) -> dict[str, Any]:
        done = self.run("up", "--detach", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return self.state()

    def running(self) -> dict[str, Any]:
        """The stack that an earlier test left, or a new one."""
        living = load_living(Layout(self.data))
        return self.state() if living is not None and living.phase == "ready" else self.up()

    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.data / "dev.json").read_text(encoding="utf-8")))

    def status(self) -> tuple[int, dict[str, Any]]:
        done = self.run("status", "--json")
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    made = Dev(tmp_path_factory.mktemp("one"))
    yield made
    made.run("down", "--wipe")


def pids(state: dict[str, Any], *kinds: str) -> list[int]:
    return [process["pid"] for process in state["processes"] if process["kind"] in kinds]


def all_gone(state: dict[str, Any]) -> bool:
    return all(start_mark(pid) is None for pid in pids(state, "role", "service"))


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def test_up_tells_how_to_reach_everything_and_a_second_up_the_same(dev: Dev) -> None:
    state = dev.up()
    assert set(state["roles"]) == {"web", "worker"}
    assert state["api_key"] == "kept"
    assert all(state[name] for name in ("base_url", "tenant", "admin_url", "admin_user", "admin_password"))
    assert all("127.0.0.1" in state[name] for name in ("database_url", "redis_url", "broker_url", "s3_endpoint"))
    assert (dev.data / "dev.json").stat().st_mode & 0o777 == 0o600
    second = dev.run("up")
    assert second.returncode == 0
    assert "runs already" in second.stdout
    assert state["base_url"] in second.stdout
    assert dev.state() == state


def test_nothing_listens_beyond_loopback(dev: Dev) -> None:
    listening = [
        connection.laddr
        for pid in pids(dev.running(), "role", "service")
        for connection in psutil.Process(pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 5, "PostgreSQL, Redis, S3, demo site, web"
    assert {address.ip for address in listening} == {"127.0.0.1"}


def test_a_killed_role_is_back_within_five_seconds(dev: Dev) -> None:
    before = dev.running()["roles"]["worker"]
    os.kill(before[0], signal.SIGKILL)
    until(lambda: dev.state()["roles"]["worker"] not in ([], before), 5)
    code, status = dev.status()
    assert (code, status["running"], status["roles"]) == (0, True, dev.state()["roles"])


def test_a_changed_setting_restarts_the_stack_and_stays(dev: Dev) -> None:
    before = dev.running()
    restart = dev.run("up", "--detach", EGRESS_ALLOW="10.1.2.3")
    assert restart.returncode == 0, restart.stderr
    steps = re.findall(r"^ok (.*) \(.* s\)$", restart.stderr, re.MULTILINE)
    assert steps[:2] == ["check the settings", "stop the stack, to start it with other values of EGRESS_ALLOW"]
    assert "runs already" not in restart.stdout + restart.stderr
    after = dev.state()
    assert after["environment"]["EGRESS_ALLOW"].startswith("10.1.2.3,127.0.0.1:")
    assert all_gone(before)
    assert after["base_url"] == before["base_url"], "ports are kept"
    assert dev.up() == after, "a variable that is not set changes nothing"


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("EGRESS_ALLOW", "localhost:28999", "EGRESS_ALLOW: 'localhost:28999' is not an address"),
        ("REDIS_URL", "redis://127.0.0.1:1/0", "REDIS_URL names 127.0.0.1:1, where nothing answers."),
        ("DATABASE_URL", "postgresql://127.0.0.1:1/x", "DATABASE_URL cannot be used"),
    ],
)
def test_a_setting_that_cannot_be_used_leaves_the_running_stack_alone(
    dev: Dev, setting: str, value: str, reason: str
) -> None:
    before = dev.running()
    done = dev.run("demo", "http://127.0.0.1:28999/file", **{setting: value})
    assert done.returncode == 2, done.stderr
    assert f"settings in the environment cannot be used:\n  {reason}" in done.stderr
    assert "The running stack was left alone." in done.stderr
    assert dev.state() == before


@pytest.mark.parametrize("command", ["up", "up --detach", "manage check"])
def test_bad_settings_are_all_told_before_a_first_start(tmp_path: Path, command: str) -> None:
    dev = Dev(tmp_path)
    done = dev.run(*command.split(), WORKER_SLOTS="abc", LEASE_SECONDS="5", BROKER_URL="redis://h:port/0")
    assert done.returncode == 2
    assert all(f"\n  {name}" in done.stderr for name in ("WORKER_SLOTS", "BROKER_URL")), done.stderr
    assert "LEASE_SECONDS" in done.stderr
    assert "Nothing was started." in done.stderr
    assert "start postgres" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_supervisor_leaves_nothing_and_up_starts_anew(dev: Dev) -> None:
    before = dev.running()
    os.kill(pids(before, "supervisor")[0], signal.SIGKILL)
    until(lambda: all_gone(before), 15)
    code, status = dev.status()
    assert (code, status["running"], status["roles"]) == (1, False, {"web": [], "worker": []})
    assert not set(pids(dev.up(), "role", "service")) & set(pids(before, "role", "service"))


def test_a_second_data_folder_runs_at_the_same_time_though_started_twice_at_once(dev: Dev, tmp_path: Path) -> None:
    first, other = dev.running(), Dev(tmp_path)
    try:
        with ThreadPoolExecutor() as threads:
            both = [threads.submit(other.run, "up", "--detach") for _ in range(2)]
        done = [each.result() for each in both]
        assert [each.returncode for each in done] == [0, 0], done
        assert done[0].stdout == done[1].stdout, "one stack for both"
        assert "ok the stack runs already\n" in "".join(each.stderr for each in done)
        assert not (other.data / "logs" / "supervisor.log.1").exists(), "only one of them started it"
        second = other.state()
        names = ("base_url", "database_url", "redis_url", "s3_endpoint")
        assert all(first[name] != second[name] for name in names)
        assert dev.status()[0] == other.status()[0] == 0
    finally:
        other.run("down", "--wipe")
    assert dev.status()[0] == 0


def test_a_half_made_database_is_made_again(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    (dev.data / "postgres" / "base").mkdir(parents=True)
    (dev.data / "postgres.unfinished").mkdir()
    (dev.data / "dev.json").write_text('{"torn', encoding="utf-8")
    done = dev.run("manage", "migrate", "--check")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "postgres" in done.stderr
    assert (dev.data / "postgres" / "PG_VERSION").exists()
    assert not (dev.data / "postgres.unfinished").exists()


def test_sigterm_stops_every_process_and_wipe_deletes_the_data(dev: Dev) -> None:
    state = dev.running()
    (dev.data / "not ours").touch()
    os.kill(pids(state, "supervisor")[0], signal.SIGTERM)
    until(lambda: not (dev.data / "dev.json").exists(), 15)
    assert all_gone(state)
    assert dev.run("down", "--wipe").returncode == 0
    assert sorted(path.name for path in dev.data.iterdir()) == ["not ours", "supervisor.lock"]

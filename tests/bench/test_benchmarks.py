"""Each benchmark at a tiny size, as a person runs it: exit code, JSON, picture, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from django.conf import settings

from bench.catalogue import ALL
from devstack.layout import ROOT
from tests.integration.roles import database_url

BROKER_DATABASE = 15


def bench_environment(**changes: str) -> dict[str, str]:
    """A Redis database that no other test uses; RabbitMQ is left out, since other tests may use it just now."""
    broker = urlsplit(settings.REDIS_URL)._replace(path=f"/{BROKER_DATABASE}").geturl()
    own = {"BROKER_URL": broker, "TEST_AMQP_URL": "", "SECRET_KEY": settings.SECRET_KEY}
    return {**os.environ, "DATABASE_URL": database_url(), **own, **changes}


def start(arguments: list[str], folder: Path, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench", "--out", str(folder), *arguments],
        cwd=ROOT,
        env=bench_environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def databases_of(run: subprocess.Popen[str]) -> list[str]:
    with psycopg.connect(database_url()) as link:
        rows = link.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"%\\_bench\\_{run.pid}\\_%"])
        return [row[0] for row in rows]


@pytest.fixture(scope="module")
def figures(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of one run of all benchmarks; most of its time goes into starting processes."""
    folder = tmp_path_factory.mktemp("bench")
    run = start(["--tiny"], folder)
    output, errors = run.communicate(timeout=500)
    assert run.returncode == 0, errors
    assert not databases_of(run)
    return folder, output


@pytest.mark.parametrize("name", ALL)
def test_a_benchmark_measures_and_keeps_its_figures(name: str, figures: tuple[Path, str]) -> None:
    folder, output = figures
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert (document["benchmark"], document["sizes"]) == (name, dict(ALL[name].tiny))
    assert document["machine"]["cpu_count"] == os.cpu_count()
    assert any(figure["value"] > 0 for figure in document["figures"])
    for figure in document["figures"]:
        assert figure["value"] >= 0, figure  # 0 is good news of some, and a tiny run's CPU rounds to it
        assert figure["name"] in output
    ElementTree.fromstring((folder / f"{name}.svg").read_text(encoding="utf-8"))  # noqa: S314  our own


@pytest.mark.usefixtures("django_db_setup")
def test_a_stopped_benchmark_ends_its_processes_and_drops_its_database(tmp_path: Path) -> None:
    run = start(["wakeup", "--jobs", "1000"], tmp_path)
    wait_for(tmp_path / "logs" / "wakeup" / "worker.log", run)
    children = psutil.Process(run.pid).children(recursive=True)
    run.terminate()
    run.communicate(timeout=30)
    assert run.returncode == 130
    assert len(children) >= 3
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not databases_of(run)


def test_ctrl_c_stops_a_benchmark(tmp_path: Path) -> None:
    run = start(["fetch", "--rounds", "1000"], tmp_path)
    wait_for(tmp_path / "logs" / "fetch" / "bench.target.log", run)
    children = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode == 130
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def wait_for(path: Path, run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.05)


def test_a_database_that_does_not_answer_is_told_of(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--out", str(tmp_path), "pool"],
        cwd=ROOT,
        env=bench_environment(DATABASE_URL="postgres://postgres@127.0.0.1:1/none"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2
    assert "The database in DATABASE_URL cannot be used" in run.stderr
    assert "Traceback" not in run.stderr

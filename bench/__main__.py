"""`python -m bench [NAME [--SIZE N ...]]`: runs all benchmarks, or one, and keeps their figures and pictures.

Each runs in a process group of its own, which is ended when it takes too long or on Ctrl-C. Exit code 0: all were
measured, whatever the figures; 2: one could not be; 130: stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

from bench.arguments import parser
from bench.catalogue import ALL, BY_NAME, BenchFailed, Benchmark
from bench.console import note
from bench.database import address, scratch_database
from devstack.layout import ROOT

NEEDED = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "S3_ENDPOINT_URL")
CANNOT = 2
STOPPED = 130
GRACE_SECONDS = 9.0  # less than ./dev gives this process


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    options = parser().parse_args(arguments)
    chosen = [BY_NAME[options.name]] if options.name else list(ALL.values())
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        note(f"bench: {', '.join(missing)} must be set; ./dev bench sets up all that is needed.")
        return CANNOT
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            template = _migrated(stack) if any(benchmark.uses_database for benchmark in chosen) else ""
            return max(_run(benchmark, _sizes(benchmark, options), folder, template) for benchmark in chosen)
    except (BenchFailed, subprocess.CalledProcessError) as error:
        note(f"bench: {error}")
        return CANNOT
    except KeyboardInterrupt:
        return STOPPED
    finally:
        note(f"Figures and pictures are in {folder}.")


def _sizes(benchmark: Benchmark, options: argparse.Namespace) -> dict[str, int]:
    usual = benchmark.tiny if options.tiny else benchmark.sizes
    return {name: getattr(options, name, None) or number for name, number in usual.items()}


def _migrated(stack: ExitStack) -> str:
    """The name of a database with the service's tables, from which each benchmark gets a copy of its own."""
    url = os.environ["DATABASE_URL"]
    name = stack.enter_context(scratch_database(url, "template"))
    note("making the tables")
    environment = {**os.environ, "DATABASE_URL": address(url, name), "DEBUG": "1"}
    command = [sys.executable, "manage.py", "migrate", "--noinput", "-v", "0"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return name


def _run(benchmark: Benchmark, sizes: Mapping[str, int], folder: Path, template: str) -> int:
    note(f"{benchmark.name}: {benchmark.summary}")
    environment = dict(os.environ)
    try:
        with ExitStack() as stack:
            if benchmark.uses_database:
                url = os.environ["DATABASE_URL"]
                name = stack.enter_context(scratch_database(url, benchmark.name, template=template))
                environment["DATABASE_URL"] = address(url, name)
            return _supervised(benchmark, sizes, folder, environment)
    except BenchFailed as error:
        note(f"bench: {benchmark.name}: {error}")
        return CANNOT


def _supervised(benchmark: Benchmark, sizes: Mapping[str, int], folder: Path, environment: Mapping[str, str]) -> int:
    command = [sys.executable, "-m", "bench.one", benchmark.name, json.dumps(dict(sizes)), str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, env=dict(environment), start_new_session=True)
    try:
        return process.wait(benchmark.limit_seconds)
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"not done after {benchmark.limit_seconds:.0f} s") from None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """In order first; whatever is left of its process group then, and of an impatient Ctrl-C nothing is heard."""
    earlier = [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            note("bench: it does not end by itself and is killed")
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), earlier, strict=True):
        signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs one benchmark in this process and writes what it measured: `python -m bench.one NAME SIZES FOLDER`.

`bench.__main__` starts it with a database of its own and ends it when it takes too long. SIZES is a JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import django

from bench import machine
from bench.catalogue import BY_NAME, BenchFailed
from bench.console import note
from bench.figures import Report
from bench.picture import draw

CANNOT = 2
STOPPED = 130


def main(name: str, sizes: Mapping[str, int], folder: Path) -> int:
    """Exit code 0 when it was measured, 2 when it could not be."""
    signal.signal(signal.SIGTERM, _stop)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    os.environ.setdefault("SECRET_KEY", secrets.token_urlsafe(48))
    found = machine.facts()
    django.setup()
    # Only now: the benchmarks import models.
    benchmark = importlib.import_module(f"bench.{name}")
    try:
        figures = benchmark.run(sizes, folder / "logs" / name)
    except BenchFailed as error:
        note(f"bench: {name}: {error}")
        return CANNOT
    report = Report(name, BY_NAME[name].summary, sizes, figures, found)
    (folder / f"{name}.json").write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    (folder / f"{name}.svg").write_text(draw(report), encoding="utf-8")
    print(report.table(), flush=True)
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])))

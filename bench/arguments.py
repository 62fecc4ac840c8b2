"""What `./dev bench` may be called with. `python -m bench.arguments ...` says what is wrong with it.

Standard library only: `./dev` asks on a bare Python, before it installs anything or starts a server.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench.catalogue import BY_NAME
from devstack.layout import Layout


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("./dev bench", description="Runs all benchmarks, or one.")
    usual = Layout.of(os.environ, "bench").data
    made.add_argument("--out", type=Path, default=usual, help="folder for the figures (default: %(default)s)")
    made.add_argument("--tiny", action="store_true", help="only show that it works; the figures mean nothing")
    names = made.add_subparsers(dest="name", metavar="NAME")
    for benchmark in BY_NAME.values():
        one = names.add_parser(benchmark.name, help=benchmark.summary, description=benchmark.summary)
        for name, number in benchmark.sizes.items():
            one.add_argument(f"--{name.replace('_', '-')}", type=_count, metavar="N", help=f"default: {number}")
    return made


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    parser().parse_args(sys.argv[1:])

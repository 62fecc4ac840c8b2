"""What the commands of `./dev` may be called with. Standard library only: a typing error is told before an install."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence


def target(text: str) -> str:
    """A URL that the service may take. Only what none could fetch is refused here; the API decides on the rest."""
    scheme, colon, rest = text.strip().partition(":")
    if not colon or not re.fullmatch(r"https?", scheme, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r} does not start with http:// or https://")
    if not rest.strip("/\\"):
        raise argparse.ArgumentTypeError(f"{text!r} names no host")
    return text


def demo() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("./dev demo", description="Runs real jobs through the whole stack.")
    what = "what to fetch; without any, the built-in demo site"
    parser.add_argument("urls", nargs="*", metavar="URL", type=target, help=what)
    return parser


def up() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("./dev up", description="Starts every role of the Procfile on embedded services.")
    parser.add_argument("--detach", action="store_true", help="return once the API answers; ./dev down stops it")
    return parser


def status() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("./dev status", description="What runs, on which port, since when.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def down() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("./dev down", description="Stops every process of the stack.")
    parser.add_argument("--wipe", action="store_true", help="also delete the database, the results and the logs")
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {"demo": demo, "up": up, "status": status, "down": down}


def check(command: str, arguments: Sequence[str]) -> None:
    """Exits with code 2 and the reason for arguments that `command` does not take, with 0 and its help for `--help`.

    `test`, `bench` and `manage` hand their arguments on.
    """
    if command in PARSERS:
        PARSERS[command]().parse_args(arguments)

"""`manage.py set_host`."""

from __future__ import annotations

import getpass
import os
from argparse import ArgumentTypeError, BooleanOptionalAction
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandParser

from core.commands import ServiceCommand
from jobs import host_policies
from jobs.targets import InvalidTarget

DEFAULT: Final = "default"
_LIMITS: Final = ("rate", "burst", "concurrency")


class Command(ServiceCommand):
    """Changes and shows how a host is treated."""

    help = (
        "Changes the limits of a host for all tenants, and shows how it stands; without options it only shows. "
        "Workers follow within two seconds. HOST is a name with its port, or a URL; a bare name means its port 443 "
        "and its port 80, which are two hosts with limits of their own."
    )
    example = 'set_host example.com:443 --rate 0.5 --concurrency 1 --note "asked by their operator" --json'

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("host", type=_hosts, help="As example.com, example.com:8443 or https://example.com/path.")
        parser.add_argument("--rate", type=_rate, metavar="N", help="Most requests a second, or `default`.")
        parser.add_argument("--burst", type=_count, metavar="N", help="Requests at once after a rest, or `default`.")
        parser.add_argument("--concurrency", type=_count, metavar="N", help="Most connections at once, or `default`.")
        parser.add_argument("--note", type=_note, metavar="TEXT", help="Why: for the next operator.")
        pause = parser.add_mutually_exclusive_group()
        pause.add_argument("--pause", action="store_const", dest="paused", const=True, help="Fetch nothing from it.")
        pause.add_argument("--resume", action="store_const", dest="paused", const=False, help="Fetch from it again.")
        parser.add_argument(
            "--adaptive", action=BooleanOptionalAction, help="Slow down by itself when the host answers 429 or 503."
        )
        parser.add_argument("--unblock", action="store_true", help="Lift a block that came of its Retry-After.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        changes = {name: None if options[name] == DEFAULT else options[name] for name in _LIMITS if options[name]}
        changes |= {name: options[name] for name in ("note", "paused", "adaptive") if options[name] is not None}
        for host in options["host"]:
            if changes:
                host_policies.change(host, changes, by=_operator())
            if options["unblock"]:
                host_policies.lift_block(host)
        views = [asdict(host_policies.view(host)) for host in options["host"]]
        blocks = [view["blocked_until"] for view in views if view["blocked_until"] is not None]
        return views[0] | {"blocked_until": max(blocks, default=None), "hosts": options["host"]}


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def _hosts(text: str) -> list[str]:
    try:
        return host_policies.hosts_meant(text)
    except InvalidTarget as error:
        raise ArgumentTypeError(f"{text!r}: {error}") from error


def _rate(text: str) -> float | str:
    if text == DEFAULT:
        return text
    try:
        rate = float(text) if text.isascii() and "_" not in text else float("nan")
    except ValueError:
        rate = float("nan")
    _refuse(text, host_policies.rate_problem(rate))
    return rate


def _count(text: str) -> int | str:
    if text == DEFAULT:
        return text
    count = int(text[:12]) if text.isascii() and text.isdecimal() else 0
    _refuse(text, host_policies.count_problem(count))
    return count


def _refuse(text: str, problem: str | None) -> None:
    if problem is not None:
        raise ArgumentTypeError(f"{text!r} {problem}")


def _note(text: str) -> str:
    if len(text) > host_policies.LONGEST_NOTE or "\0" in text:
        raise ArgumentTypeError(f"a note has at most {host_policies.LONGEST_NOTE} characters")
    return text

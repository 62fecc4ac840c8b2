"""Arguments that several of this app's commands take."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, BooleanOptionalAction
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from core.proxies import InvalidProxy, check_proxy, parse_proxy, seal_proxy


def add_limits(parser: CommandParser) -> None:
    """The limits of a tenant."""
    parser.add_argument("--weight", type=_count, metavar="N", help="Share of the pool relative to other tenants.")
    parser.add_argument("--max-running", type=_count, metavar="N", help="Most jobs running at once.")
    parser.add_argument("--max-queued", type=_count, metavar="N", help="Most jobs waiting.")
    parser.add_argument("--submit-rate", type=_count, metavar="N", help="Most jobs submitted a second.")


def add_fetching(parser: CommandParser) -> None:
    """How a tenant's jobs are fetched, unless one says otherwise itself."""
    parser.add_argument(
        "--respect-robots", action=BooleanOptionalAction, default=None, help="Whether jobs heed robots.txt (RFC 9309)."
    )
    parser.add_argument(
        "--proxy",
        type=_sealed_proxy,
        metavar="URL",
        help="What jobs go through, as http://user:password@host:port (https and socks5 too); none: nothing; -: read "
        "it from standard input, so that it stands in no list of processes. It is kept sealed and never shown.",
    )


def fetching_in(options: Mapping[str, Any]) -> dict[str, bool | str]:
    """What of `add_fetching` a command line names."""
    return {name: options[name] for name in ("respect_robots", "proxy") if options[name] is not None}


def _sealed_proxy(text: str) -> str:
    """As it is kept; empty for none. The messages do not repeat it."""
    if text == "none":
        return ""
    try:
        proxy = parse_proxy(sys.stdin.readline().strip() if text == "-" else text)
        check_proxy(proxy)
    except InvalidProxy as error:
        raise ArgumentTypeError(str(error)) from None
    return seal_proxy(proxy)


def _count(text: str) -> int:
    if text == "0":
        raise ArgumentTypeError("0 is not a whole number from 1; to stop a tenant's jobs, use set_tenant --pause")
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:12]) <= 2**31 - 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {2**31 - 1}")
    return int(text)


def moment(text: str) -> datetime:
    """A time as RFC 3339 with its offset; raises ArgumentTypeError."""
    try:
        value = datetime.fromisoformat(text)
        in_utc = value.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2030-01-31T12:00:00Z") from error
    if value.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} has no offset; write 2030-01-31T12:00:00Z")
    return in_utc

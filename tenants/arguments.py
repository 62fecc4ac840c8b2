"""Arguments that several of this app's commands take."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime

from django.core.management.base import CommandParser


def add_limits(parser: CommandParser) -> None:
    """The limits of a tenant."""
    parser.add_argument("--weight", type=_count, metavar="N", help="Share of the pool relative to other tenants.")
    parser.add_argument("--max-running", type=_count, metavar="N", help="Most jobs running at once.")
    parser.add_argument("--max-queued", type=_count, metavar="N", help="Most jobs waiting.")
    parser.add_argument("--submit-rate", type=_count, metavar="N", help="Most jobs submitted a second.")


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

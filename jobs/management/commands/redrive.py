"""`manage.py redrive`."""

from __future__ import annotations

import uuid
from argparse import ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from core.commands import ServiceCommand
from core.progress import ProgressBar
from jobs import dead_letters
from jobs.arguments import add_selection, selection_in
from jobs.models import Job


class Command(ServiceCommand):
    """Gives jobs that failed a fresh set of attempts."""

    help = (
        "Gives jobs that failed a fresh set of attempts: some by --id, a group by --tenant, --host and --code, or "
        "--all. Safe to stop and to repeat, and to run twice at once: a job is never touched unless it has failed."
    )
    example = "redrive --host example.com --code http_401 --json"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--id", type=_job_id, nargs="+", action="extend", metavar="ID", help="These jobs; all must have failed."
        )
        add_selection(parser)
        parser.add_argument("--all", action="store_true", help="Every dead letter there is.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        jobs = _meant(options)
        with ProgressBar(self.stderr, "redriving", jobs.count()) as bar:
            return {"redriven": dead_letters.redrive(jobs, bar.advance)}


def _meant(options: Mapping[str, Any]) -> QuerySet[Job]:
    """The jobs that the command line names in exactly one of its three ways."""
    by_filter = any(options[name] is not None for name in ("tenant", "host", "code"))
    ways = [options["id"] is not None, by_filter, options["all"]]
    if not any(ways):
        raise CommandError("Say which: --id, or --tenant, --host and --code, or --all.")
    if sum(ways) > 1:
        raise CommandError("Give --id, or filters, or --all, not several of them.")
    return dead_letters.of_ids(options["id"]) if options["id"] else selection_in(options).jobs


def _job_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a job's id") from error

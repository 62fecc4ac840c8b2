"""`manage.py sweep --once`: one pass of the sweeper by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from core.commands import ServiceCommand
from jobs import sweeper


class Command(ServiceCommand):
    """Runs one pass of the sweeper outside Celery; the role itself is a Celery worker that beat wakes."""

    help = "Mends what time must mend: leases that ran out, messages that the broker lost."
    example = "sweep --once --json"

    def add_arguments(self, parser: CommandParser) -> None:
        """`--once`, which says that it does not go on by itself."""
        parser.add_argument("--once", action="store_true", required=True, help="Make one pass and print what it did.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        """One pass; what it did, in rows."""
        return asdict(sweeper.sweep())

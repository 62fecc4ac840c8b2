"""`manage.py sweep --once`: one pass of the sweeper by hand."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand

from jobs import sweeper


class Command(BaseCommand):
    """Runs one pass of the sweeper outside Celery; the role itself is a Celery worker that beat wakes."""

    help = "Mend what time must mend (expired leases, lost messages). Example: manage.py sweep --once --json"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """`--once` for one pass, `--json` for its figures."""
        parser.add_argument("--once", action="store_true", required=True, help="make one pass and print what it did")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """One pass."""
        done = asdict(sweeper.sweep())
        self.stdout.write(json.dumps(done) if options["json"] else ", ".join(f"{k}: {v}" for k, v in done.items()))

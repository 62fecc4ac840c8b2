"""The base of the back-office commands: `--help` with an example, `--json`, exit codes 0, 1 and 2 (contract).

0: done. 1: done, with findings. 2: could not; the reason stands on stderr and stdout stays empty.
"""

from __future__ import annotations

import json
from argparse import RawDescriptionHelpFormatter
from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.db import DatabaseError, InterfaceError

from core.encoding import to_json
from core.errors import ServiceError

FINDINGS = 1
CANNOT = 2


class _HelpFormatter(RawDescriptionHelpFormatter, DjangoHelpFormatter):
    """Keeps the lines of the example as they are."""


class ServiceCommand(BaseCommand):
    """A command that does one thing (`act`) and shows what came of it, to a person or to a script."""

    example: ClassVar[str]

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Adds the example below the help, and `--json`."""
        kwargs |= {
            "formatter_class": _HelpFormatter,
            "epilog": f"example:\n  python manage.py {self.example}",
        }
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.add_argument("--json", action="store_true", help="Print one JSON object and nothing else.")
        return parser

    def act(self, **options: Any) -> Mapping[str, Any]:
        """Do it, and return what to print; raises CommandError, or a ServiceError, when it cannot be done."""
        raise NotImplementedError

    def for_people(self, result: Mapping[str, Any]) -> str:
        """What `act` returned, as a person reads it."""
        return _one_a_line(result)

    def has_findings(self, result: Mapping[str, Any]) -> bool:
        """Whether what `act` returned calls for somebody to do something: then the exit code is 1."""
        return False

    def execute(self, *args: Any, **options: Any) -> str | None:
        """As Django does, with every "could not" turned into exit code 2."""
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            error.returncode = CANNOT
            raise
        except ServiceError as error:
            raise CommandError(error.detail, returncode=CANNOT) from error
        except (DatabaseError, InterfaceError) as error:
            reason = str(error).partition("\n")[0]
            raise CommandError(f"The database refused: {reason}", returncode=CANNOT) from error

    def handle(self, *args: Any, **options: Any) -> None:
        """Act, then print. Raises SystemExit when there are findings."""
        as_json = options.pop("json")
        result = self.act(**options)
        self.stdout.write(to_json(result).decode() if as_json else self.for_people(result))
        if self.has_findings(result):
            raise SystemExit(FINDINGS)


def _one_a_line(result: Mapping[str, Any]) -> str:
    width = max((len(name) for name in result), default=0)
    plain = json.loads(to_json(result))
    return "\n".join(f"{name.replace('_', ' '):<{width}}  {_word(value)}" for name, value in plain.items())


def _word(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

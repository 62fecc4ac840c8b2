"""`manage.py simulate`."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from core.commands import ServiceCommand
from core.progress import ProgressBar
from jobs.simulator import picture, reading
from jobs.simulator.figures import jain, tenant_figures
from jobs.simulator.gates import HostGates
from jobs.simulator.orders import ORDERS, PRIORITIES, order_named
from jobs.simulator.pool import simulate
from jobs.simulator.record import SAMPLES, Outcome
from jobs.simulator.scenario import Scenario
from jobs.simulator.table import described

DEFAULT: Final = "noisy_neighbour"
DEFAULT_OF_PRIORITIES: Final = "priorities"
QUIET_SECONDS: Final = 2.0  # a run that is over by then needs no progress bar


class Command(ServiceCommand):
    """Shows who would run when."""

    requires_system_checks = ()  # it reads no setting
    help = (
        "Simulates a pool with a few tenants, in no time, and says who waited how long. SCENARIO is a TOML file (see "
        f"docs/fairness.md) or one of {', '.join(reading.shipped_names())}; without one, {DEFAULT}, or "
        f"{DEFAULT_OF_PRIORITIES} if --priorities is given. Needs no server and changes nothing."
    )
    example = (
        "simulate --order shared --picture shared.svg\n  python manage.py simulate --priorities strict\n"
        "  python manage.py simulate my_pool.toml --json"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="A TOML file, or a name from above.")
        parser.add_argument(
            "--order",
            choices=ORDERS,
            default=ORDERS[0],
            help="fair: as the service decides; shared: first come, first served. Default: fair.",
        )
        parser.add_argument(
            "--priorities",
            choices=PRIORITIES,
            help="weights: of ten jobs six high, three normal, one low, as the service decides; strict: high always "
            "first. Default: weights.",
        )
        parser.add_argument("--picture", type=_picture, metavar="FILE", help="Also draw the run, into an .svg file.")

    def act(self, **options: Any) -> Mapping[str, Any]:
        priorities = options["priorities"] or PRIORITIES[0]
        try:
            scenario = reading.read(
                options["scenario"] or (DEFAULT_OF_PRIORITIES if options["priorities"] else DEFAULT)
            )
        except reading.InvalidScenario as error:
            raise CommandError(str(error)) from error
        outcome = self._run(scenario, options["order"], priorities)
        if options["picture"] is not None:
            _write(options["picture"], picture.draw(outcome, options["order"], priorities))
        self._text = described(outcome, options["order"], priorities)
        return {"tenants": list(map(asdict, tenant_figures(outcome))), "jain": jain(outcome)}

    def for_people(self, result: Mapping[str, Any]) -> str:
        return self._text

    def _run(self, scenario: Scenario, order: str, priorities: str) -> Outcome:
        gates = HostGates(scenario.hosts)
        with ProgressBar(self.stderr, "Simulating", SAMPLES, quiet=QUIET_SECONDS) as bar:
            return simulate(scenario, order_named(order, priorities, scenario, gates), gates, bar.advance)


def _picture(text: str) -> Path:
    if not text.lower().endswith(".svg"):
        raise ArgumentTypeError(f"{text!r} does not end in .svg: pictures are SVG")
    return Path(text)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error

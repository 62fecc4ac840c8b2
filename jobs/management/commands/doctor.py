"""`manage.py doctor`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from django.db import InterfaceError, OperationalError

from core import health
from core.commands import ServiceCommand
from jobs import doctor, vitals
from jobs.doctor import Finding
from jobs.vitals import Vitals

PATIENCE_SECONDS: Final = 10.0  # a person waits longer than a load balancer, and a slow machine is no finding


class Command(ServiceCommand):
    """Says what is wrong and what to do."""

    help = (
        "Looks at the parts the service stands on and at the queue, and says what is wrong, why, and what to do. "
        "Exit code 0 when nothing is, 1 with findings. Changes nothing."
    )
    example = "doctor --json"

    def act(self, **options: Any) -> Mapping[str, Any]:
        with _quiet("core.health", "psycopg.pool"):  # what does not answer is a finding, told once
            report = health.probe_all(PATIENCE_SECONDS)
            seen = None if report.findings["database"].error else _vitals()
            elsewhere = [] if seen is None else list(_elsewhere())
        return {"findings": list(map(asdict, doctor.examine(report, seen, elsewhere)))}

    def has_findings(self, result: Mapping[str, Any]) -> bool:
        return bool(result["findings"])

    def for_people(self, result: Mapping[str, Any]) -> str:
        findings = result["findings"]
        if not findings:
            return "Nothing is wrong."
        blocks = (f"{f['level'].upper()}: {f['what']}\n  why: {f['why']}\n  do:  {f['do']}" for f in findings)
        return "\n\n".join(blocks)


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    loggers = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in loggers.items():
            logger.setLevel(level)


def _elsewhere() -> Iterator[Finding]:
    for look in doctor.ELSEWHERE:
        try:
            yield from look()
        except (OperationalError, InterfaceError):
            continue


def _vitals() -> Vitals | None:
    try:
        return vitals.observe()
    except (OperationalError, InterfaceError):
        return None

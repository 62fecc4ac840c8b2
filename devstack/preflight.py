"""Judging settings before anything is started, or a running stack stopped, because of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from devstack.console import step
from devstack.environment import STAND_INS, check_answers, process_environment
from devstack.failures import CannotBeDone
from devstack.layout import ROOT
from devstack.postgres import ensure_database
from devstack.services import ServiceFailed

# The service's own system checks, in a process of their own: devstack imports no app.
JUDGE = """
import json, django
from django.core.checks import run_checks
django.setup()
print(json.dumps([f"{found.msg} {found.hint or ''}".strip() for found in run_checks() if found.is_serious()]))
"""
LAST_LINES = 5


class BadSettings(CannotBeDone):
    """Settings of the user that the service refuses, or that name a server that does not serve."""

    def __init__(self, reasons: Sequence[str], outcome: str) -> None:
        lines = "\n".join(f"  {reason}" for reason in reasons)
        super().__init__(f"the settings in the environment cannot be used:\n{lines}\n{outcome}")


def check_settings(
    chosen: Mapping[str, str], environ: Mapping[str, str], outcome: str = "Nothing was started."
) -> None:
    """Has the service check what the user set. Raises BadSettings, with `outcome` as its last sentence.

    The stack's own settings need no check, so that a start without any setting does not wait for one.
    """
    if not chosen:
        return
    with step("check the settings"):
        reasons = _complaints({**environ, **STAND_INS, **chosen})
        if reasons:
            raise BadSettings(reasons, outcome)


def check_servers(chosen: Mapping[str, str], environ: Mapping[str, str], outcome: str) -> None:
    """Tries the servers that the user named, and makes a missing database or bucket there. Raises BadSettings."""
    try:
        check_answers(chosen)
        if "DATABASE_URL" in chosen:
            ensure_database(chosen["DATABASE_URL"])
    except ServiceFailed as failure:
        raise BadSettings([str(failure)], outcome) from failure
    if "S3_ENDPOINT_URL" in chosen:
        done = _python({**environ, **STAND_INS, **chosen}, "-m", "devstack.bucket")
        if done.returncode != 0:
            raise BadSettings(done.stderr.splitlines()[-LAST_LINES:], outcome)


def _complaints(environment: Mapping[str, str]) -> list[str]:
    done = _python(environment, "-c", JUDGE)
    if done.returncode != 0:
        return ["the service cannot even read them:", *done.stderr.splitlines()[-LAST_LINES:]]
    return list(map(str, json.loads(done.stdout.splitlines()[-1])))


def _python(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        env=process_environment(environment, {}, ""),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )

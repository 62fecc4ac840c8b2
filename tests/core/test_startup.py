"""No role starts with settings that it could not keep its promises with."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.web_role import ROOT, command_of, environment, free_port

CELERY = f"{shlex.quote(sys.executable)} -m celery -A core.celery"
ROLES = {
    "web": command_of("web"),
    "worker": f"{CELERY} worker -Q jobs.high -P threads -c 1",
    "beat": f"{CELERY} beat --pidfile= --schedule ",
}


@pytest.mark.parametrize("role", ROLES)
def test_bad_settings_stop_a_role_with_the_reasons(role: str, tmp_path: Path) -> None:
    variables = environment(
        LEASE_SECONDS="10",
        REDIS_URL="http://:hidden@host",
        SECRET_KEY="short",
        EGRESS_ALLOW="0.0.0.0/0",
        PORT=str(free_port()),
        DEBUG="false",
    )
    command = ROLES[role] + (shlex.quote(str(tmp_path / "schedule")) if role == "beat" else "")
    ended = subprocess.run(["sh", "-c", command], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=90)
    said = ended.stdout + ended.stderr
    assert ended.returncode not in (0, None)
    assert [code for code in ("jobs.E001", "core.E001", "core.E002", "core.E003") if code not in said] == []
    assert "hidden" not in said
    assert "Traceback" not in said

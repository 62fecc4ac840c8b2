"""Running the service's management commands, and other short programs, as part of setting up a stack."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

from devstack.layout import ROOT

LAST_CHARACTERS = 1500


class ManagementFailed(Exception):
    """A command failed; the message holds its last lines."""


async def manage(environment: Mapping[str, str], *arguments: str) -> str:
    """What `manage.py` prints on stdout. Raises ManagementFailed."""
    return await run_python(environment, "manage.py", *arguments)


async def run_python(environment: Mapping[str, str], *arguments: str) -> str:
    """What a Python program prints on stdout. Raises ManagementFailed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=environment,
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip()[-LAST_CHARACTERS:]
        raise ManagementFailed(f"python {' '.join(arguments)} failed:\n{last}")
    return output.decode()

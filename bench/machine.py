"""On what a figure was measured: without it, a figure says nothing."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("Django", "celery", "kombu", "granian", "psycopg", "httpx2", "httpcore2", "obstore", "boto3")
MIB = 1024 * 1024


def facts() -> dict[str, Any]:
    """The machine as it is now, before the benchmark: the load is what other programs cause."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "cpu_count": os.cpu_count(),
        "cpu": _cpu_name(),
        "memory_mib": psutil.virtual_memory().total // MIB,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

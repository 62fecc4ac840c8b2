"""Where everything of one stack lives: one data folder a checkout, `.data/` unless DEV_DATA_DIR names another."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Layout:
    """The paths under one data folder. The folder is 0700: it holds passwords, a database and what was fetched."""

    data: Path
    procfile: Path = ROOT / "Procfile"

    @classmethod
    def of(cls, environ: Mapping[str, str], kind: str = "") -> Layout:
        """The folder of the stack, or its sub-folder `kind` for tests and benchmarks, which share nothing with it."""
        data = Path(environ.get("DEV_DATA_DIR") or ROOT / ".data").resolve()
        return cls(data / kind if kind else data, Path(environ.get("DEV_PROCFILE") or ROOT / "Procfile").resolve())

    @property
    def state(self) -> Path:
        return self.data / "dev.json"

    @property
    def secrets(self) -> Path:
        return self.data / "secrets.json"

    @property
    def ports(self) -> Path:
        return self.data / "ports.json"

    @property
    def lock(self) -> Path:
        return self.data / "supervisor.lock"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    def create(self) -> None:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)


class Lock:
    """Held by the process that runs the stack of a data folder. The kernel frees it when that process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """False: another living process runs this stack."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def is_running(layout: Layout) -> bool:
    """Whether a living process runs the stack of this folder, whatever its files say."""
    if not layout.lock.exists():
        return False
    lock = Lock(layout.lock)
    free = lock.take()
    lock.release()
    return not free


def write_private(path: Path, text: str) -> None:
    """Replaces a file in one step, readable by its owner only, so that a reader never sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when the file is missing or damaged, so that a torn file heals itself."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


class Secrets:
    """Passwords and keys made once and kept in the data folder, so that restarts find their database again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def random(self, name: str, length: int) -> str:
        """The kept value of `name`; made of `length` letters and digits the first time."""
        value = self.get(name)
        if value is None:
            value = secrets.token_hex(length)[:length]
            self.set(name, value)
        return value

    def get(self, name: str) -> str | None:
        value = read_json(self._path).get(name)
        return value if isinstance(value, str) else None

    def set(self, name: str, value: str) -> None:
        write_private(self._path, json.dumps({**read_json(self._path), name: value}, indent=2))

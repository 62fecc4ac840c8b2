"""One bounded log file per process, and its lines on the terminal while the stack runs in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from devstack.console import say

MAX_LOG_BYTES = 10 * 1024 * 1024  # a file and its predecessor: at most twice this a process
CHUNK_BYTES = 64 * 1024
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
NAME_WIDTH = 10


class RoleLog:
    """`<name>.log`, moved to `<name>.log.1` at each start of the stack and whenever it is full."""

    def __init__(self, folder: Path, name: str, *, echo: bool = False) -> None:
        self.path = folder / f"{name}.log"
        self._prefix = _prefix(name) if echo else None
        self._file = self._open_new()
        self._size = 0
        self._unfinished = b""

    def write(self, chunk: bytes) -> None:
        self._append(chunk)
        if self._prefix is not None:
            self._echo(chunk)

    def _append(self, chunk: bytes) -> None:
        if self._size + len(chunk) > MAX_LOG_BYTES:
            self._file.close()
            self._file = self._open_new()
            self._size = 0
        self._file.write(chunk)
        self._size += len(chunk)

    def note(self, text: str) -> None:
        """Puts a line of the runner's own between those of the process; the terminal gets it from the runner."""
        self._append(f"[dev] {text}\n".encode())

    def last_lines(self, count: int) -> list[str]:
        return last_lines(self.path, count)

    def _echo(self, chunk: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        for line in lines:
            say(f"{self._prefix}{line.decode(errors='replace')}")

    def _open_new(self) -> BinaryIO:
        if self.path.exists():
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        return self.path.open("wb", buffering=0)


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log file, read from its end; empty when there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - CHUNK_BYTES))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def _prefix(name: str) -> str:
    text = f"{name:>{NAME_WIDTH}} | "
    if not sys.stdout.isatty():
        return text
    colour = COLOURS[sum(name.encode()) % len(COLOURS)]
    return f"\033[{colour}m{text}\033[0m"

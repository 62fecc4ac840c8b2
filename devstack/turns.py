"""Work on a folder that only one process at a time may do."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devstack.console import step


@contextmanager
def taking_turns(folder: Path, others: str) -> Iterator[None]:
    """Waits until no other process is in here with the same folder. The kernel ends the turn of one that dies."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"wait for {others}"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

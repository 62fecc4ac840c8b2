"""What a stack leaves in its data folder: processes of a killed one, and data that `--wipe` deletes."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from devstack import state
from devstack.console import note
from devstack.layout import Layout
from devstack.processes import end_leftovers

# Only names of our own are deleted, as DEV_DATA_DIR may point at a folder that holds other things too.
DATA_ENTRIES = ("postgres", "postgres.unfinished", "redis", "s3")
OTHER_ENTRIES = (
    *("rclone-cache", "rclone.conf", "logs", "demo", "static", "test", "bench"),
    *("dev.json", "ports.json", "secrets.json"),
)
OTHER_PATTERNS = ("celerybeat-schedule*", ".*.json.*")


def heal(layout: Layout) -> None:
    """Ends what a killed supervisor left running. Only for the process that holds the lock of the data folder."""
    old = state.load(layout.state)
    if old is not None:
        ended = end_leftovers(old.processes, old.stack_id)
        if ended:
            note(f"ok end what an earlier stack left running: {', '.join(ended)}")
    layout.state.unlink(missing_ok=True)


def delete_databases(layout: Layout) -> None:
    """Makes the embedded servers start empty."""
    _delete(layout, DATA_ENTRIES)


def wipe(layout: Layout) -> None:
    """Deletes all that a stack ever put into its data folder."""
    _delete(layout, (*DATA_ENTRIES, *OTHER_ENTRIES))
    _delete(layout, [path.name for pattern in OTHER_PATTERNS for path in layout.data.glob(pattern)])


def _delete(layout: Layout, names: Iterable[str]) -> None:
    for name in names:
        entry = layout.data / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)

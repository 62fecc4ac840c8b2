"""The sweeper's door to the storage: beat sends it, a worker on queue `sweeper` opens it."""

from __future__ import annotations

import logging
import threading

from celery import shared_task

from jobs.routing import SWEEP_ORPHANS
from results import storage
from results.orphans import OrphanSweep

PAGE = 200

_sweep = OrphanSweep()
# A storage that hangs holds this task for a minute; were a second one let in, no thread would be left for the leases.
_one_at_a_time = threading.Lock()

logger = logging.getLogger(__name__)


@shared_task(name=SWEEP_ORPHANS)
def sweep_orphans() -> None:
    """Delete the objects that no result names, a page at a time."""
    if not _one_at_a_time.acquire(blocking=False):
        return
    try:
        while (looked_after := _sweep.delete_page(PAGE)) > 0:
            logger.info("looked after what %s attempts may have left in storage", looked_after)
    except storage.StorageUnavailable as error:
        logger.warning("orphans stay until the storage answers: %s", error)
    finally:
        _one_at_a_time.release()

"""The sweeper's door to the storage: beat sends it, a worker on queue `sweeper` opens it."""

from __future__ import annotations

import logging

from celery import shared_task

from jobs.routing import SWEEP_ORPHANS
from results import orphans, storage

PAGE = 200

logger = logging.getLogger(__name__)


@shared_task(name=SWEEP_ORPHANS)
def sweep_orphans() -> None:
    """Delete the objects that no result names, a page at a time."""
    try:
        while (deleted := orphans.delete_orphans(PAGE)) > 0:
            logger.info("deleted what %s attempts left in storage", deleted)
    except storage.StorageUnavailable as error:
        logger.warning("orphans stay until the storage answers: %s", error)

"""The sweeper's door: beat sends it, a worker on queue `sweeper` opens it."""

from __future__ import annotations

import logging
from dataclasses import asdict

from celery import shared_task

from jobs import sweeper
from jobs.routing import SWEEP

logger = logging.getLogger(__name__)


@shared_task(name=SWEEP)
def sweep() -> None:
    """One pass of the sweeper."""
    swept = asdict(sweeper.sweep())
    if any(swept.values()):
        logger.info("swept: %s", swept)

"""The doors: finish events come in here, and a Celery worker that serves the queue `events` runs a delivery engine."""

from __future__ import annotations

import logging
import uuid
from dataclasses import asdict
from typing import Any

from celery import shared_task
from celery.concurrency.thread import TaskPool
from celery.signals import celeryd_after_setup, worker_shutdown
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.routing import EVENTS_QUEUE, SWEEP_WEBHOOKS
from scraper.egress import EgressGuard
from webhooks import announcing, sweeper
from webhooks.engine import DeliveryEngine
from webhooks.sender import Sender

logger = logging.getLogger(__name__)


class EngineHolder:
    """The one delivery engine of this process, made only in a worker of the queue `events`."""

    engine: DeliveryEngine | None = None


@shared_task(name="webhooks.announce")
def announce(job_id: str) -> None:
    """The job ended: make the deliveries that tell of it, and begin at once."""
    if announcing.announce([uuid.UUID(job_id)]) and EngineHolder.engine is not None:
        EngineHolder.engine.wake()


@shared_task(name=SWEEP_WEBHOOKS)
def sweep() -> None:
    """Make what a lost finish event left out, and drop what is past its time."""
    swept = asdict(sweeper.sweep())
    if any(swept.values()):
        logger.info("swept: %s", swept)


def make_sender() -> Sender:
    """The sender as the settings want it."""
    return Sender(EgressGuard(settings.EGRESS_ALLOW, ports=settings.EGRESS_PORTS))


@celeryd_after_setup.connect
def start_engine(instance: Any, **_: Any) -> None:
    """Raises ImproperlyConfigured for a pool that forks: the engine is woken from the threads that hear of ends."""
    if EVENTS_QUEUE not in instance.app.amqp.queues.consume_from:
        return
    if not issubclass(instance.pool_cls, TaskPool):
        raise ImproperlyConfigured(
            "A worker of the queue events runs with `--pool threads`: its engine is one process."
        )
    EngineHolder.engine = DeliveryEngine(make_sender)
    EngineHolder.engine.start()


@worker_shutdown.connect
def stop_engine(**_: Any) -> None:
    """Celery is done; the tries under way get their grace."""
    if EngineHolder.engine is not None:
        EngineHolder.engine.stop(settings.SHUTDOWN_GRACE_SECONDS)
        EngineHolder.engine = None

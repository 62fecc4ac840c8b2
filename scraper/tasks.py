"""The worker role: a Celery worker that was given job queues runs an engine, which pulls from them itself.

Celery gives the process its command line, its signals, remote control, and any other queue that was named.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Sequence
from typing import Any

from celery.concurrency.thread import TaskPool
from celery.signals import celeryd_after_setup, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.retries import Backoff
from jobs.routing import QUEUE_OF_PRIORITY
from scraper.egress import EgressGuard
from scraper.engine import Engine, EngineConfig
from scraper.fetcher import Fetcher
from scraper.host_records import HostRecords
from scraper.politeness import Limiter
from scraper.pulling import Puller
from scraper.robots import PRODUCT_TOKEN
from scraper.visits import HostAdmission

USER_AGENT = f"{PRODUCT_TOKEN}/1"

logger = logging.getLogger(__name__)


class EngineHolder:
    """The one engine of this process, made when the Celery worker starts and only if it serves job queues."""

    engine: Engine | None = None


def make_fetcher() -> Fetcher:
    """The fetcher as the settings want it."""
    return Fetcher(
        egress=EgressGuard(settings.EGRESS_ALLOW, ports=settings.EGRESS_PORTS),
        user_agent=USER_AGENT,
        max_connections=settings.WORKER_SLOTS,
        http2=settings.FETCH_HTTP2,
    )


def make_engine(queues: Sequence[str]) -> Engine:
    """The engine as the settings want it; its name tells host, process and start, so that no two are ever alike."""
    config = EngineConfig(
        worker=f"{socket.gethostname()[:80]}:{os.getpid()}:{uuid.uuid4().hex[:8]}",
        slots=settings.WORKER_SLOTS,
        heartbeat_seconds=settings.HEARTBEAT_SECONDS,
        lease_seconds=settings.LEASE_SECONDS,
        backoff=Backoff(settings.RETRY_BASE_SECONDS, settings.RETRY_CAP_SECONDS),
    )
    limiter = Limiter(HostRecords(), url=settings.REDIS_URL, process=config.worker)
    return Engine(config, source=Puller(queues), make_fetcher=make_fetcher, admission=HostAdmission(limiter))


@celeryd_after_setup.connect
def start_engine(instance: Any, **_: Any) -> None:
    """Take the job queues away from Celery's consumer, which would have them 1 : 1 : 1, and give them to an engine.

    Raises ImproperlyConfigured for a pool that forks.
    """
    chosen = instance.app.amqp.queues
    job_queues = [name for name in QUEUE_OF_PRIORITY.values() if name in chosen.consume_from]
    if not job_queues:
        return
    if not issubclass(instance.pool_cls, TaskPool):
        raise ImproperlyConfigured("A worker of the job queues runs with `--pool threads`; its engine is one process.")
    chosen.deselect(job_queues)
    logger.info("pulling from %s", ", ".join(job_queues))
    EngineHolder.engine = make_engine(job_queues)
    EngineHolder.engine.start()


@worker_shutting_down.connect
def refuse_jobs(**_: Any) -> None:
    """SIGTERM came: messages in hand go back to the bus."""
    if EngineHolder.engine is not None:
        EngineHolder.engine.refuse()


@worker_shutdown.connect
def stop_engine(**_: Any) -> None:
    """Celery is done; the running attempts get their grace."""
    if EngineHolder.engine is not None:
        EngineHolder.engine.stop(settings.SHUTDOWN_GRACE_SECONDS)
        EngineHolder.engine = None

"""The worker's door: a message from the bus becomes a ticket for the engine."""

from __future__ import annotations

import os
import socket
import uuid
from typing import Any

from celery import shared_task
from celery.concurrency.thread import TaskPool
from celery.exceptions import Reject
from celery.signals import celeryd_after_setup, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.retries import Backoff
from jobs.routing import EXECUTE, QUEUE_OF_PRIORITY
from jobs.transitions import ClaimTicket
from scraper.egress import EgressGuard
from scraper.engine import Engine, EngineConfig, EngineStopping
from scraper.fetcher import Fetcher
from scraper.hearing import HearingWatch, leave_process, messages_in

USER_AGENT = "scraping-jobs/1"


class EngineHolder:
    """The one engine of this process, made when the Celery worker starts and only if it serves the job queues."""

    engine: Engine | None = None
    hearing: HearingWatch | None = None


@shared_task(name=EXECUTE)
def execute(job_id: str, claim_no: int, host: str) -> None:
    """Hand the job to the engine; returning acknowledges the message, which the claim has made superfluous."""
    if EngineHolder.engine is None:
        raise Reject("no engine in this process", requeue=True)
    try:
        EngineHolder.engine.take(ClaimTicket(uuid.UUID(job_id), claim_no, host))
    except EngineStopping as error:
        raise Reject("shutting down", requeue=True) from error


def make_fetcher() -> Fetcher:
    """The fetcher as the settings want it."""
    return Fetcher(
        egress=EgressGuard(settings.EGRESS_ALLOW, ports=settings.EGRESS_PORTS),
        user_agent=USER_AGENT,
        max_connections=settings.WORKER_SLOTS,
    )


def make_engine() -> Engine:
    """The engine as the settings want it; its name tells host, process and start, so that no two are ever alike."""
    config = EngineConfig(
        worker=f"{socket.gethostname()[:80]}:{os.getpid()}:{uuid.uuid4().hex[:8]}",
        slots=settings.WORKER_SLOTS,
        heartbeat_seconds=settings.HEARTBEAT_SECONDS,
        lease_seconds=settings.LEASE_SECONDS,
        backoff=Backoff(settings.RETRY_BASE_SECONDS, settings.RETRY_CAP_SECONDS),
    )
    return Engine(config, make_fetcher=make_fetcher)


@celeryd_after_setup.connect
def start_engine(instance: Any, **_: Any) -> None:
    """Start the engine before the first message can arrive. Raises ImproperlyConfigured for a pool that forks."""
    queues = set(instance.app.amqp.queues.consume_from)
    if not queues & set(QUEUE_OF_PRIORITY.values()):
        return
    if not issubclass(instance.pool_cls, TaskPool):
        raise ImproperlyConfigured("A worker of the job queues runs with `--pool threads`; its engine is one process.")
    engine = make_engine()
    engine.start()
    EngineHolder.engine = engine
    EngineHolder.hearing = HearingWatch(
        silent_for=engine.silent_for,
        waiting=lambda: messages_in(sorted(queues)),
        patience=settings.DEAF_SECONDS,
        leave=leave_process,
    )
    EngineHolder.hearing.start()


@worker_shutting_down.connect
def refuse_jobs(**_: Any) -> None:
    """SIGTERM came: messages in hand go back to the bus."""
    if EngineHolder.hearing is not None:
        EngineHolder.hearing.stop()
    if EngineHolder.engine is not None:
        EngineHolder.engine.refuse()


@worker_shutdown.connect
def stop_engine(**_: Any) -> None:
    """Celery is done; the running attempts get their grace."""
    if EngineHolder.engine is not None:
        EngineHolder.engine.stop(settings.SHUTDOWN_GRACE_SECONDS)
        EngineHolder.engine = None

"""The publisher role: `manage.py publish` loops until SIGTERM; `--once` makes one pass and says what it did."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from argparse import ArgumentParser
from types import FrameType
from typing import Any

import psycopg
from django.core.management.base import BaseCommand
from django.db import Error as DatabaseError
from django.db import connection
from kombu.exceptions import OperationalError as BrokerError

from core.celery import app
from jobs import dispatcher, publisher
from jobs.leadership import PUBLISHER_LOCK, Leader

BATCH = 500
POLL_SECONDS = 1.0  # the floor: no notice is needed for a job to be seen within this time
WINDOW_FULL_SECONDS = 0.02
STANDBY_SECONDS = 2.0
OUTAGE_SECONDS = 1.0

logger = logging.getLogger("jobs.publisher")


class Command(BaseCommand):
    """Moves due jobs and finish events from the database to the bus."""

    help = "Publish due jobs and finish events to the bus. Example: manage.py publish --once --json"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """`--once` for one pass, `--json` for its figures."""
        parser.add_argument("--once", action="store_true", help="make one pass and print what it did")
        parser.add_argument("--json", action="store_true", help="print one JSON object (with --once)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Loop until SIGTERM or SIGINT, or make one pass."""
        if options["once"]:
            done = {"published": publisher.publish_batch(BATCH), "finished": publisher.publish_finish_events(BATCH)}
            self.stdout.write(json.dumps(done) if options["json"] else ", ".join(f"{k}: {v}" for k, v in done.items()))
            return
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _setter(stop))
        run(stop)


def _setter(stop: threading.Event) -> Any:
    def handler(number: int, frame: FrameType | None) -> None:
        stop.set()

    return handler


def run(stop: threading.Event) -> None:
    """Publish while leading, until `stop` is set; outages of the database or the broker are waited out."""
    leader = Leader(PUBLISHER_LOCK)
    while not stop.is_set():
        try:
            if leader.lead():
                leader.wait(_one_pass())
            else:
                leader.wait(STANDBY_SECONDS)
        except (DatabaseError, psycopg.Error, BrokerError, OSError) as error:
            logger.warning("holding off for %s s: %s: %s", OUTAGE_SECONDS, type(error).__name__, error)
            _drop_connections(leader)
            stop.wait(OUTAGE_SECONDS)
    leader.close()


def _one_pass() -> float:
    """Publish what is due; returns how long to wait for the next pass, in seconds."""
    started = time.monotonic()
    sent = publisher.publish_batch(BATCH) + publisher.publish_finish_events(BATCH)
    if sent:
        return 0.0 if sent >= BATCH else max(0.0, 0.005 - (time.monotonic() - started))
    if dispatcher.room_in_window() == 0:
        return WINDOW_FULL_SECONDS
    due = dispatcher.seconds_until_next_due()
    return POLL_SECONDS if due is None else min(POLL_SECONDS, max(due, WINDOW_FULL_SECONDS))


def _drop_connections(leader: Leader) -> None:
    """A connection that broke once stays broken; the next pass makes new ones."""
    leader.close()
    connection.close()
    app.pool.force_close_all()
    app.amqp._producer_pool = None

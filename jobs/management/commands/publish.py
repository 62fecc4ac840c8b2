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

from jobs import dispatcher, publisher
from jobs.bus import BROKER_ERRORS, Bus
from jobs.leadership import PUBLISHER_LOCK, Leader
from jobs.routing import QUEUE_OF_PRIORITY

BATCH = 500
POLL_SECONDS = 1.0  # the floor: no notice is needed for a job to be seen within this time
WINDOW_FULL_SECONDS = 0.02
STANDBY_SECONDS = 2.0
OUTAGE_SECONDS = 1.0
JOB_QUEUES = tuple(QUEUE_OF_PRIORITY.values())

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
            with Bus() as bus:
                done = {
                    "published": publisher.publish_batch(BATCH, bus.send),
                    "finished": publisher.publish_finish_events(BATCH, bus.send),
                }
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
    leader, bus, losses = Leader(PUBLISHER_LOCK), Bus(), publisher.LossWatch()
    while not stop.is_set():
        try:
            if leader.lead():
                losses.look(lambda: bus.holds(JOB_QUEUES))
                leader.wait(_one_pass(bus))
            else:
                leader.wait(STANDBY_SECONDS)
        except BROKER_ERRORS as error:
            logger.warning("the broker does not answer, trying again: %s: %s", type(error).__name__, error)
            stop.wait(OUTAGE_SECONDS)
        except (DatabaseError, psycopg.Error) as error:
            logger.warning("the database does not answer, trying again: %s: %s", type(error).__name__, error)
            leader.close()
            connection.close()
            stop.wait(OUTAGE_SECONDS)
    bus.close()
    leader.close()


def _one_pass(bus: Bus) -> float:
    """Publish what is due; returns how long to wait for the next pass, in seconds."""
    started = time.monotonic()
    sent = publisher.publish_batch(BATCH, bus.send) + publisher.publish_finish_events(BATCH, bus.send)
    if sent:
        return 0.0 if sent >= BATCH else max(0.0, 0.005 - (time.monotonic() - started))
    if dispatcher.room_in_window() == 0:
        return WINDOW_FULL_SECONDS
    due = dispatcher.seconds_until_next_due()
    return POLL_SECONDS if due is None else min(POLL_SECONDS, max(due, WINDOW_FULL_SECONDS))

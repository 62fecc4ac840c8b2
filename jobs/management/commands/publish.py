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

from jobs import backlog, notices, publisher
from jobs.bus import BROKER_ERRORS, Bus
from jobs.dispatch_report import Reporter
from jobs.dispatcher import Dispatcher
from jobs.leadership import PUBLISHER_LOCK, Leader
from jobs.routing import QUEUE_OF_PRIORITY

BATCH = 250  # what one pass sends: a newcomer waits no longer than that takes
POLL_SECONDS = 1.0  # the floor: no notice is needed for a job to be seen within this time
END_SECONDS = 0.02  # between looks whether a job has ended that others wait for
SHORTEST_SECONDS = 0.005
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
                    "published": publisher.publish_batch(BATCH, bus.send_all),
                    "finished": publisher.publish_finish_events(BATCH, bus.send_all),
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
    dispatcher, reporter = None, Reporter()
    while not stop.is_set():
        try:
            if leader.lead():
                dispatcher = dispatcher or Dispatcher()
                if losses.look(lambda: bus.holds(JOB_QUEUES)):
                    dispatcher.forget()
                wait = _one_pass(bus, dispatcher)
                reporter.report(dispatcher)
                leader.wait(wait)
            else:
                dispatcher, reporter = None, Reporter()  # whoever leads meanwhile will know better
                leader.wait(STANDBY_SECONDS)
        except BROKER_ERRORS as error:
            logger.warning("the broker does not answer, trying again: %s: %s", type(error).__name__, error)
            stop.wait(OUTAGE_SECONDS)
        except (DatabaseError, psycopg.Error) as error:
            logger.warning("the database does not answer, trying again: %s: %s", type(error).__name__, error)
            dispatcher = None
            leader.close()
            connection.close()
            stop.wait(OUTAGE_SECONDS)
    bus.close()
    leader.close()


def _one_pass(bus: Bus, dispatcher: Dispatcher) -> float:
    """Publish what is due; returns how long to wait for the next pass, in seconds."""
    started = time.monotonic()
    published = publisher.publish_batch(BATCH, bus.send_all, dispatcher)
    if published:
        notices.work_published()
    sent = published + publisher.publish_finish_events(BATCH, bus.send_all)
    if sent:
        return 0.0 if sent >= BATCH else max(0.0, 0.005 - (time.monotonic() - started))
    return _until_next(dispatcher)


def _until_next(dispatcher: Dispatcher) -> float:
    """How long there is nothing to do for sure, in seconds, unless a notice comes."""
    waits = [POLL_SECONDS, dispatcher.seconds_until_work(), backlog.seconds_until_next_due()]
    if dispatcher.waits_for_an_end():
        waits.append(END_SECONDS)
    return max(SHORTEST_SECONDS, min(seconds for seconds in waits if seconds is not None))

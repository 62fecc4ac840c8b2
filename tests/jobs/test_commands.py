"""One pass of a role by hand, as an operator makes it, on the real broker."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import kombu
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db.models.functions import Now

from jobs.models import Job
from jobs.routing import QUEUE_OF_PRIORITY
from jobs.states import Priority, State
from tests import lifecycle

pytestmark = pytest.mark.django_db
QUEUE = QUEUE_OF_PRIORITY[Priority.NORMAL]


def told(*command: str) -> Any:
    """The one JSON object that the command prints."""
    output = StringIO()
    call_command(*command, "--once", "--json", stdout=output)
    return json.loads(output.getvalue())


def test_one_pass_of_the_publisher_sends_what_is_due() -> None:
    job = lifecycle.submit()
    with kombu.Connection(settings.CELERY_BROKER_URL) as link:
        queue = kombu.Queue(QUEUE, kombu.Exchange(QUEUE), routing_key=QUEUE, channel=link.default_channel)
        queue.declare()
        queue.purge()

        assert told("publish") == {"published": 1, "finished": 0}
        assert told("publish") == {"published": 0, "finished": 0}

        message = queue.get(no_ack=True)
        assert message is not None
        assert message.payload[0] == [str(job.id), 0, job.host]
        assert queue.get(no_ack=True) is None


def test_one_pass_of_the_sweeper_takes_back_what_was_lost() -> None:
    claimed = lifecycle.claim_now(lifecycle.submit())
    Job.objects.filter(pk=claimed.job_id).update(lease_expires_at=Now() - timedelta(seconds=1))

    assert told("sweep")["leases_expired"] == 1
    assert told("sweep")["leases_expired"] == 0
    assert Job.objects.get(pk=claimed.job_id).state == State.QUEUED

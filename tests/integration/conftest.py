"""A running pool on each broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest
from django.conf import settings

from devstack.demo_site import DemoSite
from jobs.models import HostPolicy
from jobs.routing import EVENTS_QUEUE, QUEUE_OF_PRIORITY, SWEEPER_QUEUE
from tests.integration.roles import Roles

QUEUES = [*QUEUE_OF_PRIORITY.values(), EVENTS_QUEUE, SWEEPER_QUEUE]


@pytest.fixture
def site() -> Iterator[DemoSite]:
    with DemoSite() as site:
        yield site


@pytest.fixture(params=["redis", pytest.param("amqp", marks=pytest.mark.amqp)])
def broker_url(request: pytest.FixtureRequest) -> str:
    """An empty broker of each kind; RabbitMQ only where TEST_AMQP_URL names one."""
    url = settings.CELERY_BROKER_URL if request.param == "redis" else os.environ["TEST_AMQP_URL"]
    _purge(url)
    return str(url)


def _purge(url: str) -> None:
    with kombu.Connection(url) as link:
        for name in QUEUES:
            queue = kombu.Queue(name, kombu.Exchange(name), routing_key=name, channel=link.default_channel)
            queue.declare()
            queue.purge()


@pytest.fixture
def roles(transactional_db: None, broker_url: str, site: DemoSite, tmp_path: Path) -> Iterator[Roles]:
    """No process yet; the test starts those it needs. Only the test's own site may be fetched from."""
    environment = {
        "BROKER_URL": broker_url,
        "EGRESS_ALLOW": f"127.0.0.1:{site.port}",
        "RETRY_BASE_SECONDS": "0.1",
        "SECRET_KEY": settings.SECRET_KEY,
    }
    limit_nothing(site)
    with Roles(environment, tmp_path) as roles:
        yield roles


def limit_nothing(site: DemoSite) -> str:
    """Lift the limits of the test's own site, as `set_host` does; returns its host."""
    host = f"127.0.0.1:{site.port}"
    HostPolicy.objects.get_or_create(host=host, rate=1e6, burst=1_000_000, concurrency=1_000_000)
    return host

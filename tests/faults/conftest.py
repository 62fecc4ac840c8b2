"""A pool under test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.arena import Arena, arena

ROLES = ("web", "publisher", "publisher", "beat", "sweeper", "sweeper", "worker", "worker")
SLOTS = 20  # in each worker


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """All roles, started once for the tests of a module; on RabbitMQ where TEST_AMQP_URL names one, else on Redis."""
    folder = tmp_path_factory.mktemp("arena")
    with arena(ROLES, folder, amqp_url=os.environ.get("TEST_AMQP_URL", ""), WORKER_SLOTS=str(SLOTS)) as made:
        yield made


@pytest.fixture
def field(running: Arena) -> Arena:
    """The pool, whole again after whatever the test before did to it."""
    running.until(running.is_ready, seconds=60, what="the pool is whole")
    return running

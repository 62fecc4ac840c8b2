"""The queue: what is to be fetched, where it stands, and every move between states."""

from django.apps import AppConfig
from django.core import checks
from prometheus_client import REGISTRY

from jobs.checks import check_lease
from jobs.metrics import QueueCollector


class JobsConfig(AppConfig):
    """Registers the checks of the queue's settings and its metrics."""

    name = "jobs"

    def ready(self) -> None:
        checks.register(check_lease)
        REGISTRY.register(QueueCollector())

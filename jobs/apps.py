"""The queue: what is to be fetched, where it stands, and every move between states."""

from django.apps import AppConfig
from django.core import checks

from jobs.checks import check_lease


class JobsConfig(AppConfig):
    """Registers the checks of the queue's settings."""

    name = "jobs"

    def ready(self) -> None:
        checks.register(check_lease)

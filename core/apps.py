"""The core app: checks at start, probes of the parts that every app stands on."""

from django.apps import AppConfig
from django.core import checks

from core import health
from core.checks import check_settings


class CoreConfig(AppConfig):
    """Registers what must be known before the first request."""

    name = "core"

    def ready(self) -> None:
        checks.register(check_settings)
        health.register("database", health.ask_database, essential=True)
        health.register("broker", health.ask_broker)
        health.register("cache", health.ask_cache)

"""The bodies of responses and the links to them."""

from django.apps import AppConfig

from core import health
from results import storage


class ResultsConfig(AppConfig):
    """Has `/readyz` ask the storage as well."""

    name = "results"

    def ready(self) -> None:
        health.register("storage", storage.ping)

"""Telling tenants that their jobs have ended."""

from django.apps import AppConfig
from prometheus_client import REGISTRY

from jobs import doctor
from webhooks import findings
from webhooks.metrics import WebhookCollector


class WebhooksConfig(AppConfig):
    """Adds its metrics, and what `doctor` looks at."""

    name = "webhooks"

    def ready(self) -> None:
        REGISTRY.register(WebhookCollector())
        doctor.ELSEWHERE.append(findings.look)

"""Telling tenants that their jobs have ended."""

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    """Signed deliveries to the callers' own addresses."""

    name = "webhooks"

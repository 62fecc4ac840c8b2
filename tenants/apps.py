"""The tenants app."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Tenants, their keys and their people."""

    name = "tenants"

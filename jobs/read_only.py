"""What admins and inlines take that only show."""

from __future__ import annotations

from django.db import models
from django.http import HttpRequest


class ReadOnly:
    """For admins and inlines alike: look, but neither add, change nor delete."""

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

"""Errors of this app; the tree they belong to is drawn in `core/errors.py`.

NotFound
`- UnknownTenant, UnknownKey     not_found           404
Conflict
`- NameTaken                     tenant_name_taken   409
"""

from __future__ import annotations

from typing import ClassVar

from core.errors import Conflict, NotFound


class UnknownTenant(NotFound):
    """No tenant has that name."""

    default_detail: ClassVar[str] = "There is no tenant of that name."


class UnknownKey(NotFound):
    """No API key has that prefix."""

    default_detail: ClassVar[str] = "There is no API key with that prefix."


class NameTaken(Conflict):
    """Names are unique."""

    code: ClassVar[str] = "tenant_name_taken"
    default_detail: ClassVar[str] = "There is already a tenant of that name."

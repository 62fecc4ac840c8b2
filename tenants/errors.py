"""Errors of this app; the tree they belong to is drawn in `core/errors.py`.

NotFound
`- UnknownTenant, UnknownKey     not_found               404
Conflict
`- NameTaken                     tenant_name_taken       409
TooManyRequests
`- SubmitRateExceeded            submit_rate_exceeded    429, Retry-After
"""

from __future__ import annotations

from typing import ClassVar

from core.errors import Conflict, NotFound, TooManyRequests


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


class SubmitRateExceeded(TooManyRequests):
    """Jobs come in faster than the tenant may submit them."""

    code: ClassVar[str] = "submit_rate_exceeded"
    default_detail: ClassVar[str] = "Jobs are submitted faster than this tenant may; wait as Retry-After says."

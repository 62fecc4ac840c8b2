"""What a caller may do."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from tenants.authentication import scopes_of
from tenants.models import Scope


class HasScope(BasePermission):
    """Reading needs `jobs:read`, everything else `jobs:write`; a view may name others as `required_scopes`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """False for a caller who is not authenticated (a 401); raises PermissionDenied naming the missing scope."""
        if request.auth is None:
            return False
        missing = sorted(_required(request, view) - scopes_of(request))
        if missing:
            raise PermissionDenied(f"This key lacks the scope {', '.join(missing)}.")
        return True


def _required(request: Request, view: Any) -> frozenset[str]:
    default = Scope.JOBS_READ if request.method in SAFE_METHODS else Scope.JOBS_WRITE
    return frozenset(getattr(view, "required_scopes", None) or {str(default)})

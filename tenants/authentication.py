"""Who is calling: a program with an API key, or a person who is logged in and belongs to a tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from tenants.models import ApiKey, Membership, Scope, Tenant

CHALLENGE = 'Bearer realm="api"'
_TENANT = "_authenticated_tenant"
_NOT_GOOD = "This API key is unknown, expired or revoked."


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Stands where Django expects a user: the program that holds `key`."""

    key: ApiKey
    is_authenticated: bool = True
    is_anonymous: bool = False
    is_active: bool = True
    is_staff: bool = False

    @property
    def pk(self) -> str:
        """Names the caller to throttles and logs."""
        return self.key.prefix

    def get_username(self) -> str:
        """The name that the browsable API shows."""
        return self.key.prefix

    def __str__(self) -> str:
        return self.key.prefix


def tenant_of(request: Request) -> Tenant:
    """The tenant on whose behalf an authenticated request is made."""
    return cast("ApiKey | Membership", request.auth).tenant


def authenticated_tenant(request: HttpRequest) -> Tenant | None:
    """The tenant for which somebody was authenticated while `request` was answered; None where nobody was."""
    tenant: Tenant | None = getattr(request, _TENANT, None)
    return tenant


def _note_tenant(request: Request, tenant: Tenant) -> None:
    """REST framework's request is gone when the answer passes the middleware; Django's is not."""
    setattr(request._request, _TENANT, tenant)


def scopes_of(request: Request) -> frozenset[str]:
    """What the caller may do; a person may do all that their tenant may."""
    return frozenset(request.auth.scopes) if isinstance(request.auth, ApiKey) else frozenset(Scope.values)


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer <key>`, or the same key as `X-API-Key`. One SELECT a request."""

    def authenticate(self, request: Request) -> tuple[KeyHolder, ApiKey] | None:
        """The caller and the key; None where no key was sent; raises AuthenticationFailed for one that is not good."""
        sent = _keys_in(request)
        if not sent:
            return None
        if len(sent) > 1:
            raise AuthenticationFailed("Authorization and X-API-Key hold different keys; send one.")
        key = ApiKey.find(sent.pop())
        if key is None:
            raise AuthenticationFailed(_NOT_GOOD)
        key.touch()
        _note_tenant(request, key.tenant)
        return KeyHolder(key), key

    def authenticate_header(self, request: Request) -> str:
        """What a 401 carries as WWW-Authenticate."""
        return CHALLENGE


def _keys_in(request: Request) -> set[str]:
    scheme, _, bearer = request.META.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
    sent = {bearer.strip()} if scheme.lower() == "bearer" else set()
    if "HTTP_X_API_KEY" in request.META:
        sent.add(request.META["HTTP_X_API_KEY"].strip())
    return sent


class MemberSessionAuthentication(SessionAuthentication):
    """Django's session for people, who act for the tenant of their membership; CSRF is checked on unsafe methods."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, Membership] | None:
        """The person and their membership; None for nobody; raises PermissionDenied for one without a tenant."""
        known = super().authenticate(request)
        if known is None:
            return None
        user = known[0]
        membership = Membership.objects.select_related("tenant").filter(user_id=user.pk).first()
        if membership is None:
            raise PermissionDenied(
                f"{user.get_username()} belongs to no tenant; "
                f"an operator can change that: manage.py create_membership {user.get_username()} TENANT"
            )
        _note_tenant(request, membership.tenant)
        return user, membership

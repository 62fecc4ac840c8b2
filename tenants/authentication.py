"""Who is calling: a program with an API key, or a person who is logged in and belongs to a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from tenants import known_keys
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
    """`Authorization: Bearer <key>`, or the same key as `X-API-Key`.

    A write costs one SELECT; a read none while the key is known from one of the last seconds.
    """

    def authenticate(self, request: Request) -> tuple[KeyHolder, ApiKey] | None:
        """The caller and the key; None where no key was sent; raises AuthenticationFailed for one that is not good."""
        sent = keys_in(request.META)
        if not sent:
            return None
        if len(sent) > 1:
            raise AuthenticationFailed("Authorization and X-API-Key hold different keys; send one.")
        key = _find(sent.pop(), reads=request.method in SAFE_METHODS)
        if key is None:
            raise AuthenticationFailed(_NOT_GOOD)
        _note_tenant(request, key.tenant)
        return KeyHolder(key), key

    def authenticate_header(self, request: Request) -> str:
        """What a 401 carries as WWW-Authenticate."""
        return CHALLENGE


def keys_in(head: Mapping[str, Any]) -> set[str]:
    """The different keys in a request's head, which is as WSGI has it."""
    scheme, _, bearer = head.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
    sent = {bearer.strip()} if scheme.lower() == "bearer" else set()
    if "HTTP_X_API_KEY" in head:
        sent.add(head["HTTP_X_API_KEY"].strip())
    return sent


def _find(plain: str, *, reads: bool) -> ApiKey | None:
    """The key; its use is noted whenever the database is asked, which is often enough."""
    known = known_keys.SHARED.recall(plain) if reads else None
    if known is not None:
        return known
    key = known_keys.SHARED.look_up(plain)
    if key is not None:
        key.touch()
    return key


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

"""`RateLimit` and `RateLimit-Policy` on every answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core.quota import UNLIMITED
from tenants import throttle
from tenants.authentication import authenticated_tenant


class RateLimitMiddleware:
    """Says what the caller's tenant may submit; where nobody was authenticated, what a tenant without a limit may."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        tenant = authenticated_tenant(request)
        quota = UNLIMITED if tenant is None else throttle.quota_of(tenant)
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            quota = replace(quota, left=0)  # a token may have come meanwhile, but the caller is to wait as told
        for name, value in quota.headers().items():
            response[name] = value
        return response

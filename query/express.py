"""The short way of `GET /jobs/{id}`: what is in memory and in the cache is answered before Django is asked.

It answers only what it is sure of: a plain question of a program whose key is known, may read and owns the job. All
else (an unknown key, a missing scope, another tenant's job, HTML, an odd header) goes on to Django, which answers it
as ever; a test compares the two, header by header.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest

from core.gateway import Answer, Header
from core.negotiation import preferred_type
from core.request_id import id_for
from query.answers import JobAnswer
from query.lookups import Lookups
from tenants import throttle
from tenants.authentication import keys_in
from tenants.known_keys import KnownKeys
from tenants.models import ApiKey, Scope

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_PATH: Final = re.compile(r"/api/v1/jobs/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_OFFERS: Final = ("application/json", "text/html", "application/problem+json")  # in the order of the API's renderers
_LONGEST_HEADER: Final = 200  # Django reads longer ones; nobody sends many different short ones
_SAME_ON_ALL: Final[tuple[Header, ...]] = (
    ("Allow", "GET, HEAD, OPTIONS"),
    ("Vary", "Accept"),
    ("X-Frame-Options", settings.X_FRAME_OPTIONS),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", str(settings.SECURE_REFERRER_POLICY)),
    ("Cross-Origin-Opener-Policy", str(settings.SECURE_CROSS_ORIGIN_OPENER_POLICY)),
)


class Express:
    """Called with the head of each request by the gateway; None sends the request on to Django."""

    def __init__(self, lookups: Lookups, keys: KnownKeys) -> None:
        self._lookups = lookups
        self._keys = keys

    async def __call__(self, environ: WSGIEnvironment) -> Answer | None:
        """The whole answer, or None."""
        wanted = _PATH.fullmatch(environ["PATH_INFO"])
        if wanted is None or not _is_plain(environ):
            return None
        key = self._reader(environ)
        if key is None:
            return None
        answer = await self._lookups.find(wanted[1])
        if answer is None or answer.tenant_id != key.tenant_id:
            return None
        return _told(answer, key, environ)

    def _reader(self, environ: WSGIEnvironment) -> ApiKey | None:
        sent = keys_in(environ)
        key = self._keys.recall(sent.pop()) if len(sent) == 1 else None
        return key if key is not None and Scope.JOBS_READ in key.scopes else None


def _is_plain(environ: WSGIEnvironment) -> bool:
    if environ["REQUEST_METHOD"] != "GET" or environ["QUERY_STRING"]:
        return False
    if "CONTENT_LENGTH" in environ or "HTTP_TRANSFER_ENCODING" in environ:
        return False
    accept, host = environ.get("HTTP_ACCEPT", ""), environ.get("HTTP_HOST", "")
    if len(accept) > _LONGEST_HEADER or len(host) > _LONGEST_HEADER:
        return False
    return _accepts_json(accept) and _is_served(host)


@lru_cache(256)
def _accepts_json(accept: str) -> bool:
    if not accept.strip():
        return True
    request = HttpRequest()
    request.META["HTTP_ACCEPT"] = accept
    return preferred_type(request, list(_OFFERS)) in ("application/json", "application/problem+json")


@lru_cache(256)
def _is_served(host: str) -> bool:
    request = HttpRequest()
    request.META["HTTP_HOST"] = host
    try:
        return bool(host) and bool(request.get_host())
    except DisallowedHost:
        return False


def _told(answer: JobAnswer, key: ApiKey, environ: WSGIEnvironment) -> Answer:
    status = answer.status_for(environ.get("HTTP_IF_NONE_MATCH"))
    headers = [
        *answer.headers().items(),
        *_SAME_ON_ALL,
        *throttle.quota_of(key.tenant).headers().items(),
        ("X-Request-Id", id_for(environ.get("HTTP_X_REQUEST_ID"))),
    ]
    if settings.SECURE_HSTS_SECONDS and _is_secure(environ):
        headers.append(("Strict-Transport-Security", f"max-age={settings.SECURE_HSTS_SECONDS}"))
    if status == HTTPStatus.NOT_MODIFIED:
        return Answer(status, headers, b"")
    headers += [("Content-Type", "application/json"), ("Content-Length", str(len(answer.body)))]
    return Answer(status, headers, answer.body)


def _is_secure(environ: WSGIEnvironment) -> bool:
    """As Django decides it: by the proxy's word where one is trusted."""
    if settings.SECURE_PROXY_SSL_HEADER is not None:
        name, value = settings.SECURE_PROXY_SSL_HEADER
        if name in environ:
            return str(environ[name]).split(",", 1)[0].strip() == value
    return str(environ["wsgi.url_scheme"]) == "https"

"""Addresses that fail in every way an application can, for the tests of what a caller then sees."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from django.core import exceptions
from django.db import DataError, InterfaceError, OperationalError, connection
from django.db.models import UUIDField
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions as rest
from rest_framework.request import Request
from rest_framework.response import Response

from core import errors
from core.views import ServiceView


def _statement_timeout() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 20")
        cursor.execute("SELECT pg_sleep(5)")


def _raiser(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


FAILURES: dict[str, tuple[Callable[[], None], int, str]] = {
    "parse": (_raiser(rest.ParseError("no")), 400, "malformed_request"),
    "malformed": (_raiser(errors.MalformedRequest()), 400, "malformed_request"),
    "suspicious": (_raiser(exceptions.SuspiciousOperation("x")), 400, "malformed_request"),
    "bad-request": (_raiser(exceptions.BadRequest("x")), 400, "malformed_request"),
    "fields": (_raiser(exceptions.TooManyFieldsSent("x")), 400, "malformed_request"),
    "denied": (_raiser(exceptions.PermissionDenied()), 403, "permission_denied"),
    "rest-denied": (_raiser(rest.PermissionDenied()), 403, "permission_denied"),
    "missing": (_raiser(Http404()), 404, "not_found"),
    "rest-missing": (_raiser(rest.NotFound()), 404, "not_found"),
    "conflict": (_raiser(errors.Conflict()), 409, "conflict"),
    "gone": (_raiser(errors.Gone()), 410, "gone"),
    "too-big": (_raiser(exceptions.RequestDataTooBig("x")), 413, "payload_too_large"),
    "media": (_raiser(rest.UnsupportedMediaType("a/b")), 415, "unsupported_media_type"),
    "invalid": (_raiser(errors.ValidationFailed()), 422, "validation_failed"),
    "rest-invalid": (_raiser(rest.ValidationError({"a": ["no"]})), 422, "validation_failed"),
    "data": (_raiser(DataError("x")), 422, "validation_failed"),
    "throttled": (_raiser(rest.Throttled(wait=7)), 429, "too_many_requests"),
    "slow-down": (_raiser(errors.TooManyRequests(retry_after=7)), 429, "too_many_requests"),
    "bug": (_raiser(RuntimeError("secret detail")), 500, "internal_error"),
    "database-down": (_raiser(OperationalError("host=db password=x")), 503, "unavailable"),
    "database-gone": (_raiser(InterfaceError("connection closed")), 503, "unavailable"),
    "statement-timeout": (_statement_timeout, 503, "unavailable"),
    "unavailable": (_raiser(errors.Unavailable(retry_after=3)), 503, "unavailable"),
}


class RestFailure(ServiceView):
    """Fails inside REST framework."""

    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request, name: str) -> Response:
        FAILURES[name][0]()
        return Response({})

    def post(self, request: Request, name: str) -> Response:
        return Response({"data": request.data})


@csrf_exempt
def plain_failure(request: HttpRequest, name: str) -> HttpResponse:
    """Fails in a plain Django view."""
    FAILURES[name][0]()
    return HttpResponse("fine")


def plain_key(request: HttpRequest, key: str) -> HttpResponse:
    """Hands a key to the database unseen, as some pages of Django's do."""
    UUIDField().to_python(key)
    return HttpResponse("fine")


class RestKey(RestFailure):
    """The same in the API, which looks at keys before it uses them."""

    def get(self, request: Request, name: str) -> Response:
        UUIDField().to_python(name)
        return Response({})


class FailsInTheMiddle:
    """A middleware whose own database access fails, on one address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/middleware":
            raise OperationalError("host=db password=x") from psycopg.OperationalError("down")
        return self.get_response(request)


urlpatterns = [
    path("api/<str:name>", RestFailure.as_view()),
    path("plain/<str:name>", plain_failure),
    path("plain-key/<str:key>", plain_key),
    path("api-key/<str:name>", RestKey.as_view()),
    path("", include("settings.urls")),  # pages of the browsable API link to the documentation
]

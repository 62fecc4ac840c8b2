"""The base of every API view, and the few addresses that belong to no app."""

from __future__ import annotations

import io
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.views.csrf import csrf_failure as default_csrf_failure
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.catalogue import catalogue
from core.encoding import to_json_body
from core.errors import NotFound, Unavailable
from core.health import probe_all
from core.negotiation import wants_html
from core.problems import Problem

DOCS = "/api/v1/docs"
CACHE_CONTROL: Final = "private, no-cache"
"""Only the caller may keep the answer, and asks each time whether it still holds."""


class BodyRequest(Request):
    """A request whose `data` is what the body says: an empty one is bad JSON, not an empty object."""

    @property
    def stream(self) -> Any:
        """The body; REST framework has None for an empty one, and then asks no parser."""
        return super().stream or io.BytesIO()

    @property
    def POST(self) -> Any:  # type: ignore[override]  # Django's stubs have a variable here
        """No fields of a form: no call takes one. The check of a person's token looks here, and would read the body,
        which makes a 400 of a call that has none."""
        return QueryDict()


class ServiceView(APIView):
    """Base of the API's views; `request.data` raises a 400 for an empty body instead of making one up."""

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        return BodyRequest(
            request,
            parsers=self.get_parsers(),
            authenticators=self.get_authenticators(),
            negotiator=self.get_content_negotiator(),
            parser_context=self.get_parser_context(request),
        )

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """No cache on the way may give an answer to another caller: one with `X-API-Key` looks public to it."""
        response.headers.setdefault("Cache-Control", CACHE_CONTROL)
        return super().finalize_response(request, response, *args, **kwargs)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """What Django shows when a form of its own pages comes without its token."""
    if wants_html(request):
        return default_csrf_failure(request, reason)
    detail = f"{reason} Pages like this one are for people in a browser."
    return Problem.of_status(HTTPStatus.FORBIDDEN, detail).response(request)


def _json(data: Any) -> HttpResponse:
    return HttpResponse(to_json_body(data), content_type="application/json")


@csrf_exempt
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The root leads to the documentation."""
    return HttpResponseRedirect(DOCS)


@csrf_exempt
@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """No picture, said once a day: browsers ask for one on every page, and a 404 would stand in their console."""
    return HttpResponse(status=HTTPStatus.NO_CONTENT, headers={"Cache-Control": "max-age=86400"})


@csrf_exempt
@require_safe
def problem_types(request: HttpRequest) -> HttpResponse:
    """Every error code with its meaning."""
    return _json({"items": list(catalogue().values())})


@csrf_exempt
@require_safe
def problem_type(request: HttpRequest, code: str) -> HttpResponse:
    """What one error code means; where the `type` of a problem leads."""
    entry = catalogue().get(code)
    if entry is None:
        raise NotFound(f"No error has the code {code[:100]!r}.")
    return _json(entry)


@csrf_exempt
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Alive: this process answers. Asks nobody else, so a dead database does not get the web role restarted."""
    return _json({"status": "ok"})


@csrf_exempt
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Ready: 200 while the essential parts answer (`degraded` if another does not), else 503."""
    report = probe_all()
    if report.usable:
        return _json({"status": "ok" if report.healthy else "degraded", "checks": report.as_dict()})
    return Problem(
        Unavailable.status,
        "A part that every call needs does not answer.",
        Unavailable.code,
        headers={"Retry-After": "5"},
        extra={"checks": report.as_dict()},
    ).response(request)


@csrf_exempt
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text of this process."""
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)

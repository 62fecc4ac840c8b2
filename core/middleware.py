"""Around every request: its id, and problem+json for whatever Django itself would have answered in HTML."""

from __future__ import annotations

import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeGuard

from django.core.exceptions import BadRequest, DisallowedHost, PermissionDenied, SuspiciousOperation, ValidationError
from django.core.signals import got_request_exception
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.html import format_html
from rest_framework.response import Response

from core.encoding import to_json_body
from core.negotiation import wants_html
from core.problems import CONTENT_TYPE, Problem, problem_of
from core.request_id import begin_request

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class RequestIdMiddleware:
    """Takes `X-Request-Id` or makes one, and puts it on the answer and into every log record."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        chosen = begin_request(request.headers.get("X-Request-Id"))
        response = self.get_response(request)
        response["X-Request-Id"] = chosen
        return response


class ProblemMiddleware:
    """No client that did not ask for HTML gets HTML, with DEBUG on as well; a person keeps Django's own pages."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        try:
            request.get_host()
        except DisallowedHost as error:
            return _answer(request, problem_of(error) or Problem.of_status(400))
        response = self.get_response(request)
        if response.status_code < 400 or not isinstance(response, HttpResponse) or _speaks_json(response):
            return response
        noted: Problem | None = getattr(request, _NOTED, None)
        if noted is not None:
            return _answer(request, noted)
        if _is_rest_problem(response):
            return _with_body(response, to_json_body(response.data))
        return response if wants_html(request) else _converted(request, response)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """A foreseen error of a plain Django view; the unforeseen goes on to Django, which logs it."""
        # Django's own pages let a key through that cannot be one, such as /admin/r/1/x/ where keys are UUIDs.
        nowhere = isinstance(error, ValidationError) and not _is_rest_view(request)
        problem = Problem.of_status(HTTPStatus.NOT_FOUND) if nowhere else problem_of(error)
        if problem is None:
            return None
        django_has_a_page = isinstance(error, _WITH_A_PAGE) and problem.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if django_has_a_page and wants_html(request):
            return None
        return _answer(request, problem)


_WITH_A_PAGE = (Http404, PermissionDenied, SuspiciousOperation, BadRequest)  # in Django, which also logs them
_NOTED = "_core_problem"


def _note_problem(request: HttpRequest | None = None, **_: Any) -> None:
    """A middleware further in failed: Django turns that into a 500 before we see it, so keep what it meant."""
    error = sys.exc_info()[1]
    problem = problem_of(error) if error is not None else None
    if request is not None and problem is not None:
        setattr(request, _NOTED, problem)


got_request_exception.connect(_note_problem, dispatch_uid="core.middleware.note_problem")


def _speaks_json(response: HttpResponse | StreamingHttpResponse) -> bool:
    return response.get("Content-Type", "").partition(";")[0] in ("application/json", CONTENT_TYPE)


def _is_rest_problem(response: HttpResponse) -> TypeGuard[Response]:
    """Whether the body is a problem under another name: a view's own renderer wrote it and named its own type."""
    media_type = response.get("Content-Type", "").partition(";")[0]
    return isinstance(response, Response) and response.exception and media_type.endswith("+json")


def _is_rest_view(request: HttpRequest) -> bool:
    """Whether the address belongs to REST framework, where Django's own ValidationError is a fault of ours."""
    return request.resolver_match is not None and hasattr(request.resolver_match.func, "cls")


def _converted(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """The same answer with a problem as its body; Allow, cookies and the like stay."""
    return _with_body(response, Problem.of_status(response.status_code).response(request).content)


def _with_body(response: HttpResponse, problem: bytes) -> HttpResponse:
    response.content = problem
    response["Content-Type"] = CONTENT_TYPE
    if response.has_header("Content-Length"):
        response["Content-Length"] = str(len(response.content))
    return response


def _answer(request: HttpRequest, problem: Problem) -> HttpResponse:
    if not wants_html(request):
        return problem.response(request)
    page = format_html("<!doctype html><title>{0}</title><h1>{0}</h1><p>{1}</p>", problem.status.phrase, problem.detail)
    return HttpResponse(page, status=problem.status, headers=dict(problem.headers))

"""Every error as problem+json (RFC 9457), whichever layer raised it.

`problem_of` is the one place that says what an exception means to a caller. REST framework asks `problem_handler`;
what Django itself answers (an unknown path, a refused host, a crash) passes `core.middleware.ProblemMiddleware`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from django.core import exceptions as django_errors
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils.encoding import escape_uri_path
from django.utils.http import escape_leading_slashes
from rest_framework import exceptions as rest_errors
from rest_framework.response import Response

from core.encoding import to_json_body
from core.errors import FieldProblem, NotAuthenticated, ServiceError, Unavailable
from core.request_id import current_request_id

CONTENT_TYPE = "application/problem+json"
DATABASE_RETRY_SECONDS = 5
MAX_ERRORS = 100  # a batch of 10,000 wrong rows must not answer with 10,000 sentences
_MAX_INSTANCE = 2048

logger = logging.getLogger(__name__)

_CODES = {
    HTTPStatus.BAD_REQUEST: "malformed_request",
    HTTPStatus.UNAUTHORIZED: "not_authenticated",
    HTTPStatus.FORBIDDEN: "permission_denied",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.NOT_ACCEPTABLE: "not_acceptable",
    HTTPStatus.REQUEST_TIMEOUT: "request_timeout",
    HTTPStatus.CONFLICT: "conflict",
    HTTPStatus.GONE: "gone",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "payload_too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
    HTTPStatus.UNPROCESSABLE_ENTITY: "validation_failed",
    HTTPStatus.TOO_MANY_REQUESTS: "too_many_requests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}
_OURS_SAY_MORE = (rest_errors.NotAuthenticated, rest_errors.NotAcceptable, rest_errors.MethodNotAllowed)
_DETAILS = {
    HTTPStatus.UNAUTHORIZED: NotAuthenticated.default_detail,
    HTTPStatus.BAD_REQUEST: "The request cannot be read.",
    HTTPStatus.FORBIDDEN: "This is not allowed.",
    HTTPStatus.NOT_FOUND: "There is nothing at this address.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This address does not answer that method; see the Allow header.",
    HTTPStatus.NOT_ACCEPTABLE: "Answers are application/json; the Accept header rules that out.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Something went wrong on our side. The request id finds it in our logs.",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What a caller is told about one error. `code` is stable; `detail` is a sentence that may change."""

    status: HTTPStatus
    detail: str
    code: str
    errors: tuple[FieldProblem, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_status(cls, status: int, detail: str = "", *, headers: Mapping[str, str] | None = None) -> Problem:
        """The problem that an HTTP status alone stands for."""
        known = _known(status)
        code = _CODES.get(known, known.name.lower())
        return cls(known, detail or _DETAILS.get(known, f"{known.phrase}."), code, headers=headers or {})

    def body(self, request: HttpRequest) -> dict[str, Any]:
        """The members of the answer to `request`."""
        return self.members(request.path, current_request_id())

    def members(self, path: str, request_id: str) -> dict[str, Any]:
        """The members of the answer (RFC 9457, and those of the contract)."""
        members: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.code.replace("_", " ").capitalize(),
            "status": int(self.status),
            "detail": self.detail,
            "instance": escape_leading_slashes(escape_uri_path(path))[:_MAX_INSTANCE],
            "code": self.code,
            "request_id": request_id,
        }
        if self.errors:
            members["errors"] = [{"pointer": e.pointer, "detail": e.detail} for e in self.errors[:MAX_ERRORS]]
        return {**members, **self.extra}

    def response(self, request: HttpRequest) -> HttpResponse:
        """The answer outside REST framework."""
        content = to_json_body(self.body(request))
        headers = {**self.headers, "Content-Type": CONTENT_TYPE, "Content-Length": str(len(content))}
        return HttpResponse(content, status=self.status, headers=headers)


def _known(status: int) -> HTTPStatus:
    try:
        return HTTPStatus(status)
    except ValueError:
        return HTTPStatus.INTERNAL_SERVER_ERROR if status >= 500 else HTTPStatus.BAD_REQUEST


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's exception handler; None for the unexpected, which Django logs with its traceback."""
    problem = problem_of(error)
    if problem is None:
        return None
    return Response(problem.body(context["request"]._request), status=problem.status, headers=dict(problem.headers))


def problem_of(error: BaseException) -> Problem | None:
    """What `error` means to the caller, or None where it is a fault of ours that nobody foresaw."""
    if isinstance(error, ServiceError):
        return _of_service_error(error)
    if isinstance(error, rest_errors.APIException):
        return _of_rest_error(error)
    if isinstance(error, DatabaseError | InterfaceError):
        return _of_database_error(error)
    return _of_django_error(error)


def _of_service_error(error: ServiceError) -> Problem:
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Problem(error.status, error.detail, error.code, error.errors, headers)


def _of_rest_error(error: rest_errors.APIException) -> Problem:
    if isinstance(error, rest_errors.ValidationError):
        return Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "One or more values are not valid.",
            "validation_failed",
            tuple(_field_problems(error.detail)),
        )
    detail = error.detail if isinstance(error.detail, str) else ""
    if isinstance(error, _OURS_SAY_MORE):
        detail = ""
    return Problem.of_status(error.status_code, str(detail), headers=_rest_headers(error))


def _rest_headers(error: rest_errors.APIException) -> dict[str, str]:
    headers: dict[str, str] = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait))
    return headers


def _field_problems(detail: Any, pointer: str = "") -> Iterator[FieldProblem]:
    """The leaves of a serializer's nested errors, each with its JSON Pointer (RFC 6901)."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            escaped = str(name).replace("~", "~0").replace("/", "~1")
            yield from _field_problems(inner, pointer if name == "non_field_errors" else f"{pointer}/{escaped}")
    elif isinstance(detail, Sequence) and not isinstance(detail, str):
        for index, inner in enumerate(detail):
            nested = isinstance(inner, Mapping | list)
            yield from _field_problems(inner, f"{pointer}/{index}" if nested and len(detail) > 1 else pointer)
    else:
        yield FieldProblem(pointer, str(detail))


def _of_database_error(error: DatabaseError | InterfaceError) -> Problem | None:
    if isinstance(error, OperationalError | InterfaceError):
        logger.warning("the database did not answer: %s: %s", type(error.__cause__ or error).__name__, error)
        return _of_service_error(Unavailable(retry_after=DATABASE_RETRY_SECONDS))
    if isinstance(error, DataError):
        logger.error("a value reached the database that validation should have refused", exc_info=error)
        return Problem.of_status(HTTPStatus.UNPROCESSABLE_ENTITY, "A value cannot be stored.")
    if isinstance(error, IntegrityError):
        logger.error("a write broke a rule of the database that the code should have checked", exc_info=error)
        return Problem.of_status(HTTPStatus.CONFLICT, "The request does not fit the current state.")
    return None


def _of_django_error(error: BaseException) -> Problem | None:
    match error:
        case Http404():
            return Problem.of_status(HTTPStatus.NOT_FOUND)
        case django_errors.PermissionDenied():
            return Problem.of_status(HTTPStatus.FORBIDDEN)
        case django_errors.DisallowedHost():
            return Problem.of_status(HTTPStatus.BAD_REQUEST, "The Host header names no host of this service.")
        case django_errors.RequestDataTooBig():
            return Problem.of_status(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request's body is too large.")
        case django_errors.TooManyFieldsSent():
            return Problem.of_status(HTTPStatus.BAD_REQUEST, "The request has too many parameters.")
        case django_errors.SuspiciousOperation() | django_errors.BadRequest() | MultiPartParserError():
            return Problem.of_status(HTTPStatus.BAD_REQUEST)
        case UnreadablePostError():
            return Problem.of_status(HTTPStatus.BAD_REQUEST, "The request's body ended too early.")
    return None

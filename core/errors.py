"""The tree of errors that callers of the API may meet.

ServiceError                 code                        HTTP status
|- MalformedRequest          malformed_request           400
|- NotAuthenticated          not_authenticated           401
|- PermissionDenied          permission_denied           403
|- NotFound                  not_found                   404
|- Conflict                  conflict                    409
|- Gone                      gone                        410
|- PayloadTooLarge           payload_too_large           413
|- UnsupportedMediaType      unsupported_media_type      415
|- ValidationFailed          validation_failed           422
|- TooManyRequests           too_many_requests           429
`- Unavailable               unavailable                 503

Apps derive their own leaves, each with a stable `code`; `problems.py` turns any of them into problem+json (RFC 9457).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One wrong value: `pointer` is a JSON Pointer (RFC 6901) into the request's body, or the parameter's name."""

    pointer: str
    detail: str


class ServiceError(Exception):
    """Base of every error that is told to a caller. `retry_after` is in seconds and becomes the header of that name."""

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    code: ClassVar[str] = "internal_error"
    default_detail: ClassVar[str] = "Something went wrong on our side."

    def __init__(
        self, detail: str = "", *, errors: Sequence[FieldProblem] = (), retry_after: int | None = None
    ) -> None:
        self.detail = detail or self.default_detail
        self.errors = tuple(errors)
        self.retry_after = retry_after
        super().__init__(self.detail)


class MalformedRequest(ServiceError):
    """The request cannot be read at all."""

    status = HTTPStatus.BAD_REQUEST
    code = "malformed_request"
    default_detail = "The request cannot be read."


class NotAuthenticated(ServiceError):
    """No key, or one that is not (or no longer) good."""

    status = HTTPStatus.UNAUTHORIZED
    code = "not_authenticated"
    default_detail = "Send a valid API key as `Authorization: Bearer <key>`."


class PermissionDenied(ServiceError):
    """Known, but not allowed."""

    status = HTTPStatus.FORBIDDEN
    code = "permission_denied"
    default_detail = "This key may not do that."


class NotFound(ServiceError):
    """Not there, or another tenant's."""

    status = HTTPStatus.NOT_FOUND
    code = "not_found"
    default_detail = "There is nothing at this address."


class Conflict(ServiceError):
    """The request does not fit the state of the thing."""

    status = HTTPStatus.CONFLICT
    code = "conflict"
    default_detail = "The request does not fit the current state."


class Gone(ServiceError):
    """It was there and will not come back."""

    status = HTTPStatus.GONE
    code = "gone"
    default_detail = "This is no longer kept."


class PayloadTooLarge(ServiceError):
    """The body is over the limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "payload_too_large"
    default_detail = "The request's body is too large."


class UnsupportedMediaType(ServiceError):
    """The body is of a type or an encoding that the call does not read."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    code = "unsupported_media_type"
    default_detail = "Send the body as `Content-Type: application/json`."


class ValidationFailed(ServiceError):
    """Readable, but one or more values are wrong; `errors` names each."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "validation_failed"
    default_detail = "One or more values are not valid."


class TooManyRequests(ServiceError):
    """A limit of the tenant is reached."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "too_many_requests"
    default_detail = "Too many requests; slow down."


class Unavailable(ServiceError):
    """A part that the call needs does not answer."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "unavailable"
    default_detail = "The service is temporarily unavailable; try again."

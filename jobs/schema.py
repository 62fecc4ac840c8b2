"""What the OpenAPI document says of every call alike: how to authenticate, and which errors may come."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse

from core.errors import (
    MalformedRequest,
    NotAuthenticated,
    PayloadTooLarge,
    PermissionDenied,
    ServiceError,
    Unavailable,
    UnsupportedMediaType,
    ValidationFailed,
)
from core.problems import CONTENT_TYPE
from core.quota import NO_LIMIT
from jobs.admission import TooManyQueued
from jobs.batches import MAX_JOBS
from jobs.serializers import ProblemSerializer
from tenants.errors import SubmitRateExceeded

ErrorType = type[ServiceError]

EVERY_CALL: Final[tuple[ErrorType, ...]] = (
    MalformedRequest,
    NotAuthenticated,
    PermissionDenied,
    ServiceError,
    Unavailable,
)
WITH_BODY: Final[tuple[ErrorType, ...]] = (PayloadTooLarge, UnsupportedMediaType, ValidationFailed)

LIMITED: Final[tuple[ErrorType, ...]] = (SubmitRateExceeded, TooManyQueued)

IDEMPOTENCY_KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": r'^([!-~]{1,255}|"[ -~]{1,510}")$'},
    OpenApiParameter.HEADER,
    description="1 to 255 visible ASCII characters, bare or in double quotes. The same key and body gets the same "
    "receipt again for 24 h, or until the job is final if that is later.",
)
REPLAYED: Final = OpenApiParameter(
    "Idempotent-Replayed",
    str,
    OpenApiParameter.HEADER,
    response=[202],
    description="`true` when an earlier request with the same Idempotency-Key made the job.",
)
COME_AGAIN: Final = OpenApiParameter(
    "Retry-After",
    int,
    OpenApiParameter.HEADER,
    response=[409],
    description="Seconds to wait before the next try, with the codes `idempotency_key_in_flight` and "
    "`result_not_ready`: the others do not pass with time.",
)

_MEANINGS: Final = {
    400: "The request cannot be read, or a parameter or header is not valid.",
    401: "No valid key was sent.",
    403: "The key lacks the scope that the call needs.",
    404: "Not there, or another tenant's.",
    408: "The body did not arrive in time.",
    406: "Only JSON (or, in a browser, HTML) can be had.",
    409: "Does not fit the state of the job, or of an earlier request with the same Idempotency-Key.",
    410: "Was there, and is no longer kept.",
    413: "The body is over 1 MiB; that of a batch, over 32 MiB.",
    415: "The body is of a type that the call does not read.",
    422: "One or more values are not valid; `errors` names each.",
    429: "A limit of the tenant is reached; `Retry-After` says when to come again.",
    500: "A fault of the service, which it has noted under `request_id`.",
    503: "A part that the call needs does not answer; `Retry-After` says when to come again.",
}


_HEADERS: Final = [
    OpenApiParameter(
        "X-Request-Id",
        str,
        OpenApiParameter.HEADER,
        response=True,
        description="Names this request in the service's log. It is the request's own `X-Request-Id` where that has "
        "1 to 128 letters, digits and `.`, `_`, `-`.",
    ),
    OpenApiParameter(
        "RateLimit-Policy",
        str,
        OpenApiParameter.HEADER,
        response=True,
        description='`"submit";q=10;w=1`: up to `q` jobs may be submitted in `w` seconds, a retry counting as one. '
        f"A tenant without a limit is told q={NO_LIMIT}. (draft-ietf-httpapi-ratelimit-headers)",
    ),
    OpenApiParameter(
        "RateLimit",
        str,
        OpenApiParameter.HEADER,
        response=True,
        description='`"submit";r=9;t=1`: `r` more may be submitted now, and more again within `t` seconds. Reads use '
        "nothing up; they tell what was last known to be left.",
    ),
    OpenApiParameter(
        "Retry-After",
        int,
        OpenApiParameter.HEADER,
        response=[429, 503],
        description="Seconds to wait before the next try.",
    ),
]


class ServiceSchema(AutoSchema):
    """Adds the headers that every answer carries."""

    def get_override_parameters(self) -> list[Any]:
        return [*super().get_override_parameters(), *_HEADERS]


def problems(*errors: ErrorType) -> dict[Any, Any]:
    """The error responses of a call that may answer with `errors`, beside those that every call may answer with."""
    by_status: dict[int, list[ErrorType]] = {HTTPStatus.NOT_ACCEPTABLE.value: []}
    if PayloadTooLarge in errors:
        by_status[HTTPStatus.REQUEST_TIMEOUT.value] = []
    for error in (*EVERY_CALL, *errors):
        by_status.setdefault(error.status.value, []).append(error)
    return {(status, CONTENT_TYPE): _response(status, by_status[status]) for status in sorted(by_status)}


def _response(status: int, errors: Sequence[ErrorType]) -> OpenApiResponse:
    examples = [_example(error) for error in errors]
    return OpenApiResponse(ProblemSerializer, description=_MEANINGS[status], examples=examples)


def _example(error: ErrorType) -> OpenApiExample:
    value: dict[str, Any] = {
        "type": f"/problems/{error.code}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": error.status.value,
        "detail": error.default_detail,
        "instance": "/api/v1/jobs",
        "code": error.code,
        "request_id": "0198c6a2-b3c4-7d1e-9f00-112233445566",
    }
    if issubclass(error, ValidationFailed) and error.code == ValidationFailed.code:
        value["errors"] = [{"pointer": "/url", "detail": "The URL must begin with http:// or https://."}]
    return OpenApiExample(error.code, value=value, response_only=True, status_codes=[str(error.status.value)])


class BodyIsClosed(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Unknown fields are refused; serializers cannot say so themselves."""

    target_class = "jobs.serializers.ClosedSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        shape = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)  # type: ignore[no-untyped-call]
        return {**shape, "additionalProperties": False}


def tell_bounds_of_bodies(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """What drf-spectacular has no word for: a change needs a body, and a batch has 1 to 10,000 jobs."""
    for methods in result["paths"].values():
        if "patch" in methods:
            methods["patch"]["requestBody"]["required"] = True
        for call in methods.values():
            body = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if body.get("type") == "array":
                body |= {"minItems": 1, "maxItems": MAX_JOBS}
    return result


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`Authorization: Bearer <key>` or `X-API-Key: <key>`; drf-spectacular knows it by its import."""

    target_class = "tenants.authentication.ApiKeyAuthentication"
    name = ["bearerKey", "headerKey"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> list[dict[str, list[Any]]]:
        """Either of the two; one entry with both would ask for both."""
        return [{"bearerKey": []}, {"headerKey": []}]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key as a bearer token."},
            {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key in its own header."},
        ]


class MemberSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """People who logged in at /admin/login/."""

    target_class = "tenants.authentication.MemberSessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "A person's login."}

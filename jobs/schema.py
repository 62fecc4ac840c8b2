"""What the OpenAPI document says of every call alike: how to authenticate, and which errors may come."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiResponse

from jobs.serializers import ProblemSerializer

PROBLEM_JSON = "application/problem+json"

_MEANINGS = {
    400: "The request cannot be read, or a parameter or header is not valid.",
    401: "No valid key was sent.",
    403: "The key has not the scope that the call needs.",
    404: "Not there, or another tenant's.",
    406: "Only JSON (or, in a browser, HTML) can be had.",
    409: "Does not fit the state of the job, or of an earlier request with the same Idempotency-Key.",
    410: "Was there, and is no longer kept.",
    413: "The body is over 1 MiB.",
    415: "The body is not `application/json`.",
    422: "One or more values are not valid; `errors` names each.",
    503: "A part that the call needs does not answer; `Retry-After` says when to come again.",
}
EVERY_CALL = (400, 401, 403, 406, 503)
WITH_BODY = (413, 415, 422)


def problems(*statuses: int, codes: dict[int, list[str]] | None = None) -> dict[Any, Any]:
    """Responses for `statuses` and for what every call may answer; `codes` names the particular ones of a status."""
    return {
        (status, PROBLEM_JSON): OpenApiResponse(
            ProblemSerializer, description=_MEANINGS[status], examples=_examples(status, (codes or {}).get(status, []))
        )
        for status in sorted({*EVERY_CALL, *statuses})
    }


def _examples(status: int, codes: list[str]) -> list[OpenApiExample]:
    return [
        OpenApiExample(
            code,
            value={
                "type": "about:blank",
                "title": _MEANINGS[status],
                "status": status,
                "detail": _MEANINGS[status],
                "instance": "/api/v1/jobs",
                "code": code,
                "request_id": "0198c6a2b3c47d1e9f00112233445566",
            },
            response_only=True,
            status_codes=[str(status)],
        )
        for code in codes
    ]


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`Authorization: Bearer <key>` or `X-API-Key: <key>`; drf-spectacular finds it by being imported."""

    target_class = "tenants.authentication.ApiKeyAuthentication"
    name = ["bearerKey", "headerKey"]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key as a bearer token."},
            {
                "type": "apiKey",
                "in": "header",
                "name": "X-API-Key",
                "description": "An API key in its own header.",
            },
        ]


class MemberSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """People who logged in at /admin/login/."""

    target_class = "tenants.authentication.MemberSessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "A person's login."}

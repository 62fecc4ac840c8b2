"""What answers look like, for the OpenAPI document alone: one job, seen from every call."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import OpenApiExample

_ID: Final = "0198c6a2-b3c4-7d1e-9f00-112233445566"
_PATH: Final = f"/api/v1/jobs/{_ID}"
_LINKS: Final = {
    "self": _PATH,
    "result": f"{_PATH}/result",
    "attempts": f"{_PATH}/attempts",
    "cancel": f"{_PATH}/cancel",
}
RECEIPT: Final[dict[str, Any]] = {
    "id": _ID,
    "status": "queued",
    "created_at": "2026-11-30T08:00:00.000000Z",
    "links": _LINKS,
}
JOB: Final[dict[str, Any]] = {
    "id": _ID,
    "status": "succeeded",
    "priority": "normal",
    "url": "https://example.com/",
    "method": "GET",
    "host": "example.com:443",
    "tags": ["weather"],
    "attempts": 2,
    "max_attempts": 5,
    "last_error": {
        "code": "http_503",
        "detail": "The server answered with status 503.",
        "http_status": 503,
        "at": "2026-11-30T08:00:00.410000Z",
    },
    "waiting_on": None,
    "eligible_at": "2026-11-30T08:00:01.070000Z",
    "created_at": "2026-11-30T08:00:00.000000Z",
    "started_at": "2026-11-30T08:00:00.080000Z",
    "finished_at": "2026-11-30T08:00:01.310000Z",
    "result": {
        "bytes": 1256,
        "content_type": "text/html; charset=utf-8",
        "http_status": 200,
        "sha256": "ea8fac7c65fb589b0d53560f5251f74f9e9b243478dcb6b3ea79b5e36449c8d9",
        "final_url": "https://example.com/",
        "expires_at": "2026-12-30T08:00:01.310000Z",
    },
    "links": {**_LINKS, "events": f"{_PATH}/events"},
}
ATTEMPT: Final[dict[str, Any]] = {
    "number": 1,
    "outcome": "failed",
    "error": {"code": "http_503", "detail": "The server answered with status 503."},
    "http_status": 503,
    "worker": "worker-1@10.0.0.7",
    "started_at": "2026-11-30T08:00:00.080000Z",
    "finished_at": "2026-11-30T08:00:00.410000Z",
    "timings": {"dns": 0.011, "connect": 0.08, "tls": 0.09, "first_byte": 0.14, "total": 0.325},
    "redirects": [{"url": "https://example.com", "status": 301}],
    "response_headers": [["Content-Type", "text/plain"], ["Retry-After", "1"]],
    "connection": {"remote_address": "93.184.215.14", "http_version": "HTTP/1.1", "tls_version": "TLSv1.3"},
    "charset": {"bom": None, "header": None, "meta": None},
    "body_snippet": "Come back in a second.",
}
EVENT: Final[dict[str, Any]] = {
    "seq": 4711,
    "at": "2026-11-30T08:00:00.080000Z",
    "from": "queued",
    "to": "running",
    "reason": "claimed",
    "attempt": 1,
}
RESULT_LINK: Final[dict[str, Any]] = {
    "url": "https://s3.example/results/0198c6a2/1?X-Amz-Expires=900&X-Amz-Signature=5f3c",
    "expires_at": "2026-11-30T08:15:02.000000Z",
}


def example(name: str, value: dict[str, Any]) -> list[OpenApiExample]:
    """The examples of a serializer that has this one; drf-spectacular makes a list of it where a list is answered."""
    return [OpenApiExample(name, value=value, response_only=True, status_codes=["200", "201", "202"])]

"""What goes in and out, as examples for the OpenAPI document alone."""

from __future__ import annotations

from typing import Any, Final

_ENDPOINT_ID: Final = "0198c6a2-c0de-7a11-8000-00000000beef"
_ENDPOINT_PATH: Final = f"/api/v1/webhook-endpoints/{_ENDPOINT_ID}"
_DELIVERY_ID: Final = "0198c6a2-d311-7e57-8000-000000000001"
_JOB_ID: Final = "0198c6a2-b3c4-7d1e-9f00-112233445566"
_SECRET: Final = {"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}

URL: Final[dict[str, Any]] = {"url": "https://hooks.example.com/jobs"}
NEW_ENDPOINT: Final[dict[str, Any]] = {**URL, "description": "The importer"}
SWITCH_ON: Final[dict[str, Any]] = {"enabled": True}
OVERLAP: Final[dict[str, Any]] = {"overlap_seconds": 3600}
REPLAY_RANGE: Final[dict[str, Any]] = {"since": "2026-11-30T06:00:00Z", "until": "2026-11-30T08:00:00Z"}
REPLAYED: Final[dict[str, Any]] = {"replayed": 41, "more": False}
ENDPOINT: Final[dict[str, Any]] = {
    "id": _ENDPOINT_ID,
    **NEW_ENDPOINT,
    "enabled": True,
    "disabled_at": None,
    "disabled_reason": None,
    "failing_since": None,
    "previous_secret_expires_at": None,
    "created_at": "2026-11-30T07:59:00.000000Z",
    "links": {
        "self": _ENDPOINT_PATH,
        "deliveries": f"/api/v1/deliveries?endpoint={_ENDPOINT_ID}",
        "test": f"{_ENDPOINT_PATH}/test",
    },
}
ENDPOINT_WITH_SECRET: Final[dict[str, Any]] = {**ENDPOINT, **_SECRET}
ENDPOINTS: Final[dict[str, Any]] = {"items": [ENDPOINT]}
CALLBACK_SECRET: Final[dict[str, Any]] = {
    "created_at": "2026-11-01T10:00:00.000000Z",
    "rotated_at": None,
    "previous_secret_expires_at": None,
}
CALLBACK_SECRET_WITH_SECRET: Final[dict[str, Any]] = {
    **CALLBACK_SECRET,
    "rotated_at": "2026-11-30T08:00:00.000000Z",
    "previous_secret_expires_at": "2026-11-30T09:00:00.000000Z",
    **_SECRET,
}
DELIVERY: Final[dict[str, Any]] = {
    "id": _DELIVERY_ID,
    "type": "job.finished",
    "status": "delivered",
    "endpoint": _ENDPOINT_ID,
    **URL,
    "job": _JOB_ID,
    "tries": 1,
    "next_try_at": None,
    "last_status_code": 204,
    "last_error": None,
    "created_at": "2026-11-30T08:00:01.320000Z",
    "delivered_at": "2026-11-30T08:00:01.480000Z",
    "links": {"self": f"/api/v1/deliveries/{_DELIVERY_ID}", "replay": f"/api/v1/deliveries/{_DELIVERY_ID}/replay"},
}
DELIVERIES: Final[dict[str, Any]] = {"items": [DELIVERY], "next_cursor": None}
WHOLE_DELIVERY: Final[dict[str, Any]] = {
    **DELIVERY,
    "body": '{"type":"job.finished","timestamp":"2026-11-30T08:00:01.310000Z","data":{"id":"' + _JOB_ID + '"}}',
    "try_log": [
        {
            "number": 1,
            "at": "2026-11-30T08:00:01.350000Z",
            "status_code": 204,
            "latency_ms": 118,
            "error": None,
            "answer": "",
        }
    ],
}

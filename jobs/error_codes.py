"""The codes an attempt can end with (contract, section 5). A code is temporary when another attempt may answer
otherwise; everything else is permanent."""

from __future__ import annotations

import re
from typing import Final

TEMPORARY_HTTP: Final = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 525), 529})

TEMPORARY: Final = frozenset(
    {
        "connect_timeout",
        "read_timeout",
        "deadline_exceeded",
        "connection_refused",
        "connection_reset",
        "incomplete_body",
        "dns_error",
        "server_disconnected",
        "tls_handshake_failed",
        "lease_expired",
        "worker_shutdown",
        "storage_unavailable",
        "internal_fetch_error",
        *(f"http_{status}" for status in TEMPORARY_HTTP),
    }
)

PERMANENT: Final = frozenset(
    {
        "blocked_target",
        "bad_redirect",
        "too_many_redirects",
        "response_too_large",
        "invalid_response",
        "tls_error",
        "invalid_request",
        "unsafe_to_retry",
        "blocked_by_robots",
        "crash_loop",
    }
)


def is_temporary(code: str) -> bool:
    """Whether another attempt may end otherwise."""
    return code in TEMPORARY


def is_known(code: str) -> bool:
    """Whether callers have been told of `code`; any other is a fault of ours."""
    return code in TEMPORARY or code in PERMANENT or re.fullmatch(r"http_[0-9]{3}", code) is not None

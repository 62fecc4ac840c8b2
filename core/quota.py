"""What the `RateLimit` headers of an answer say (draft-ietf-httpapi-ratelimit-headers-11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_LIMIT: Final = 2**31 - 1  # jobs a second: the highest rate that can be set, and more than can be served


@dataclass(frozen=True, slots=True)
class Quota:
    """`limit` jobs may be submitted a second, `left` of them now; more within `reset` seconds.

    `left` is never negative and `reset` at least 1, so that a client may divide by it.
    """

    limit: int
    left: int
    reset: int = 1

    def headers(self) -> dict[str, str]:
        """The two headers: structured fields (RFC 9651), each a list of one policy, which is named `submit`."""
        return {
            "RateLimit-Policy": f'"submit";q={self.limit};w=1',
            "RateLimit": f'"submit";r={self.left};t={self.reset}',
        }


UNLIMITED: Final = Quota(NO_LIMIT, NO_LIMIT)
"""Said to a tenant without a limit, and where no tenant is known: the header has no word for "none"."""

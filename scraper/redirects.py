"""Which request follows a redirect: pure rules, no network."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_from_bytes

from jobs.targets import InvalidTarget, Target, resolve_target
from scraper.outcomes import FetchFailed

MAX_REDIRECTS: Final = 10
STATUSES: Final = frozenset({301, 302, 303, 307, 308})

CROSS_ORIGIN_HEADERS: Final = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "pragma",
        "range",
        "user-agent",
    }
)
"""All that goes along to another origin. A list of secrets to drop could never be complete (X-API-Key, X-Auth, ...)."""

_LOCATION_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F))
"""Everything that may stand in a URL or that the parser judges; the rest of the raw bytes is escaped one by one."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One request of an attempt."""

    target: Target
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def next_hop(hop: Hop, status: int, locations: list[bytes]) -> Hop:
    """The request that an answer of `status` with these Location headers asks for. Raises FetchFailed."""
    target = _target(hop.target, locations)
    method = _method(hop.method, status)
    headers = hop.headers
    body = hop.body
    if method != hop.method:
        body = b""
        headers = tuple(header for header in headers if not header[0].lower().startswith("content-"))
    if target.origin != hop.target.origin:
        headers = tuple(header for header in headers if header[0].lower() in CROSS_ORIGIN_HEADERS)
    return Hop(target=target, method=method, headers=headers, body=body)


def _target(base: Target, locations: list[bytes]) -> Target:
    if not locations or not locations[0]:
        raise FetchFailed("bad_redirect", "The redirect has no Location header.")
    if len(set(locations)) > 1:
        raise FetchFailed("bad_redirect", "The redirect has several Location headers.")
    try:
        return resolve_target(base.url, quote_from_bytes(locations[0], safe=_LOCATION_SAFE))
    except InvalidTarget as error:
        raise FetchFailed("bad_redirect", f"The redirect's Location cannot be followed. {error}") from None


def _method(method: str, status: int) -> str:
    """RFC 9110 15.4 as browsers have it (Fetch standard, "HTTP-redirect fetch")."""
    if status == 303 and method not in ("GET", "HEAD"):
        return "GET"
    if status in (301, 302) and method == "POST":
        return "GET"
    return method

"""Which format a client asks for. Quality values count, and a header too long to be honest counts as absent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest
from django.utils.http import parse_header_parameters
from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from core.errors import UnsupportedMediaType

_JSON = ("application/json", "application/problem+json")
_LONGEST_ACCEPT = 4096  # Django parses every entry; a browser's header has some 150 bytes
_UTF_8 = re.compile(r';[ \t]*charset="?utf-?8"?(?=[ \t]*(?:[;,]|$))', re.IGNORECASE)


def wants_html(request: HttpRequest) -> bool:
    """Whether the client names HTML and likes it no less than JSON; `*/*` alone does not name it."""
    accept = request.META.get("HTTP_ACCEPT", "")
    if "text/html" not in accept.lower() or len(accept) > _LONGEST_ACCEPT:
        return False
    return preferred_type(request, [*_JSON, *_kinds_of_json(request), "text/html"]) == "text/html"


def _kinds_of_json(request: HttpRequest) -> list[str]:
    """The types in the Accept header that are JSON by their suffix (RFC 6839), as they stand there."""
    try:
        return [str(accepted) for accepted in request.accepted_types if accepted.sub_type.endswith("+json")]
    except ValueError:  # see preferred_type
        return []


def preferred_type(request: HttpRequest, offers: list[str]) -> str | None:
    """The offer that the Accept header likes best; None where it likes none or cannot be read.

    Whoever asks for UTF-8 (many clients of .NET and Java do) gets it: every answer is in UTF-8, though JSON names none.
    """
    accept = request.META.get("HTTP_ACCEPT", "*/*")
    if "charset" in accept.lower():
        request = HttpRequest()
        request.META["HTTP_ACCEPT"] = _UTF_8.sub("", accept)
    try:
        return request.get_preferred_type(offers)
    except ValueError:  # a parameter in an encoding that does not exist
        return None


class ProblemNegotiation(BaseContentNegotiation):
    """Strict about what comes in, and able to answer a client that accepts only problem+json."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        """The parser of the request's type; raises UnsupportedMediaType, also for a compressed body."""
        if request.META.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
            raise UnsupportedMediaType("Send the body without a Content-Encoding.")
        parsers = list(parsers)
        media_type, parameters = parse_header_parameters(request.content_type[:256])
        if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            raise UnsupportedMediaType("Send the body in UTF-8.")
        for parser in parsers:
            if parser.media_type == media_type.lower():
                return parser
        raise UnsupportedMediaType(
            f"Send the body as `Content-Type: {' or '.join(str(p.media_type) for p in parsers)}`."
        )

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The renderer the client prefers, JSON where it does not say; raises NotAcceptable."""
        accept = request.META.get("HTTP_ACCEPT", "").strip()
        renderers = list(renderers)
        first = renderers[0]
        if not accept or len(accept) > _LONGEST_ACCEPT:
            return first, str(first.media_type)
        offers: dict[str, Any] = {str(renderer.media_type): renderer for renderer in renderers}
        offers.setdefault("application/problem+json", first)
        chosen = preferred_type(request._request, list(offers))
        if chosen is None:
            raise NotAcceptable
        return offers[chosen], str(offers[chosen].media_type)

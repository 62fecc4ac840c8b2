"""JSON out, for REST framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import BaseRenderer

from core.encoding import to_json
from core.problems import CONTENT_TYPE as PROBLEM_CONTENT_TYPE


class StrictJSONRenderer(BaseRenderer):
    """`application/json`, and `application/problem+json` for what the exception handler answered."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """The bytes of `data`; nothing at all for an answer without a body."""
        response = (renderer_context or {}).get("response")
        if response is not None and getattr(response, "exception", False):
            response["Content-Type"] = PROBLEM_CONTENT_TYPE
        return b"" if data is None else to_json(data)

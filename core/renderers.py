"""JSON out, for REST framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.renderers import OpenApiJsonRenderer
from rest_framework.renderers import BaseRenderer

from core.encoding import to_json_body
from core.problems import CONTENT_TYPE as PROBLEM_CONTENT_TYPE


class StrictJSONRenderer(BaseRenderer):
    """`application/json`, and `application/problem+json` for what the exception handler answered."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "text"  # the browsable API shows it; of "binary" it tells only the size

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """The bytes of `data`; nothing at all for an answer without a body."""
        context = renderer_context or {}
        response = context.get("response")
        if response is not None and getattr(response, "exception", False) and self._is_the_answer(response):
            response["Content-Type"] = PROBLEM_CONTENT_TYPE
        return b"" if data is None else to_json_body(data, indent=context.get("indent"))

    def _is_the_answer(self, response: Any) -> bool:
        """Whether the bytes are sent as they are; the browsable API asks for them to put them into its page."""
        return getattr(response, "accepted_renderer", self) is self


class SchemaRenderer(OpenApiJsonRenderer):
    """The OpenAPI document under its own type; it ends its line as every other JSON does."""

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """The document, indented."""
        document: bytes = super().render(data, accepted_media_type, renderer_context)
        return document + b"\n"


class PlainSchemaRenderer(SchemaRenderer):
    """The same as `application/json`."""

    media_type = "application/json"

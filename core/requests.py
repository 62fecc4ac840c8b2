"""Django's door for requests: one whose head cannot be read says so, and text in a request is UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.handlers.wsgi import WSGIHandler, WSGIRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class UnreadableHeadError(Exception):
    """Django cannot make a request of this head; it fails before any of its handlers could answer."""


class Utf8Request(WSGIRequest):
    """A request whose query and forms are UTF-8, whatever the `charset` of its Content-Type.

    Django would decode the query with that codec, and fails on those of Python's that make no text of bytes (`hex`,
    `zip`). Parsers still see the parameter, and refuse it with 415.
    """

    def __init__(self, environ: WSGIEnvironment) -> None:
        try:
            super().__init__(environ)
        except Exception as error:
            raise UnreadableHeadError(f"{type(error).__name__}: {error}") from error

    @property
    def encoding(self) -> str:
        """How bytes become text."""
        return "utf-8"

    @encoding.setter
    def encoding(self, charset: str | None) -> None:
        """Django sets what the client names, which is not heeded."""


class Handler(WSGIHandler):
    """Django as a WSGI application; raises UnreadableHeadError."""

    request_class = Utf8Request

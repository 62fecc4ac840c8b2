"""Between the web server and Django: what WSGI leaves open about a request's body and environment."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class WholeBodies:
    """Gives a chunked request a Content-Length, without which Django takes its body for empty.

    At most `limit` + 1 bytes are read, so that the parser sees that the limit was passed and memory stays bounded.
    """

    def __init__(self, application: WSGIApplication, *, limit: int) -> None:
        self._application = application
        self._limit = limit
        # The server lays its own environment under each request's; an HTTP_PROXY there would pass for a header.
        self._inherited = frozenset(os.environ)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        for name in self._inherited & environ.keys():
            if environ[name] == os.environ.get(name):
                del environ[name]
        if not environ.get("CONTENT_LENGTH") and environ.get("HTTP_TRANSFER_ENCODING"):
            body = environ["wsgi.input"].read(self._limit + 1)
            environ["wsgi.input"] = io.BytesIO(body)
            environ["CONTENT_LENGTH"] = str(len(body))
        return self._application(environ, start_response)

"""The id that ties a caller's answer to our log lines; it travels in a context variable, so any code may log it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.ids import new_id

ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,128}")
_current: ContextVar[str] = ContextVar("request_id", default="-")


def current_request_id() -> str:
    """The id of the request being answered; `-` outside of any."""
    return _current.get()


@contextmanager
def request_id(offered: str | None) -> Iterator[str]:
    """Use the id that the caller offered, or a new one where it is missing or could forge a log line."""
    chosen = offered if offered is not None and ACCEPTED.fullmatch(offered) else str(new_id())
    token = _current.set(chosen)
    try:
        yield chosen
    finally:
        _current.reset(token)


class RequestIdFilter(logging.Filter):
    """Gives every log record a `request_id`, so that the log's format may name it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current_request_id()
        return True

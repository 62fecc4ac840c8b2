"""The id that ties a caller's answer to our log lines; it travels in a context variable, so any code may log it."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar
from typing import Any

from django.core.signals import request_finished

from core.ids import new_id

ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,128}")
_current: ContextVar[str] = ContextVar("request_id", default="-")


def current_request_id() -> str:
    """The id of the request being answered; `-` outside of any."""
    return _current.get()


def begin_request(offered: str | None) -> str:
    """The id of this request (see `id_for`); now current."""
    chosen = id_for(offered)
    _current.set(chosen)
    return chosen


def id_for(offered: str | None) -> str:
    """The id that the caller offered, or a new one where that is missing or could forge a log line."""
    return offered if offered is not None and ACCEPTED.fullmatch(offered) else str(new_id())


def _end_request(**_: Any) -> None:
    """Not earlier: Django logs an error answer after the last middleware."""
    _current.set("-")


request_finished.connect(_end_request, dispatch_uid="core.request_id.end_request")


class RequestIdFilter(logging.Filter):
    """Gives every log record a `request_id`, so that the log's format may name it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current_request_id()
        return True

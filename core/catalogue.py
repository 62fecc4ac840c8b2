"""Every error code with its meaning: what the `type` of a problem leads to."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from core.errors import ServiceError
from core.problems import Problem

_WITHOUT_CLASS = (
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_ACCEPTABLE,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.INTERNAL_SERVER_ERROR,
)


def catalogue() -> dict[str, dict[str, Any]]:
    """By code: title, HTTP status and meaning of every error that the loaded apps may answer with."""
    generic = [Problem.of_status(status) for status in _WITHOUT_CLASS]
    entries = {problem.code: _entry(problem.code, problem.status, problem.detail) for problem in generic}
    for kind in _family(ServiceError):
        entries.setdefault(kind.code, _entry(kind.code, kind.status, kind.default_detail))
    return dict(sorted(entries.items()))


def _family(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _family(child)


def _entry(code: str, status: HTTPStatus, meaning: str) -> dict[str, Any]:
    return {"code": code, "title": code.replace("_", " ").capitalize(), "status": int(status), "meaning": meaning}

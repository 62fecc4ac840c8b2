"""Reads what a caller asks for (contract section 3, "A job") into a `Submission`, or tells all that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings

from core.egress import REFUSAL, rules_of
from core.errors import FieldProblem, ValidationFailed
from core.proxies import InvalidProxy, check_proxy, parse_proxy, seal_proxy
from jobs import fields
from jobs.fields import Reader, Wrong, pointer_part
from jobs.models import Method
from jobs.states import Priority
from jobs.targets import InvalidTarget, Target, parse_target

MAX_RUN_AT_AHEAD: Final = timedelta(days=366)
MAX_PROBLEMS: Final = 100
"""Problems told in one answer; a body of 1 MiB has room for 100,000 unknown fields."""

EXECUTORS: Final = {"http": "http"}
PRIORITIES: Final = {priority.label: priority for priority in Priority}
_METHODS: Final = {method.value: method.value for method in Method}
_WITHOUT_BODY: Final = frozenset({Method.GET, Method.HEAD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job as it may be stored: every value checked, defaults filled in."""

    target: Target
    method: str
    headers: dict[str, str]
    body: bytes | None
    priority: Priority
    callback_url: str
    tags: list[str]
    run_at: datetime | None
    deadline_seconds: int
    max_attempts: int
    max_bytes: int
    retry_unsafe: bool
    executor: str
    follow_redirects: bool
    respect_robots: bool | None  # None: as the tenant's policy says
    proxy: str = field(repr=False)  # sealed; empty: the tenant's


def read_submission(document: object, *, now: datetime) -> Submission:
    """The submission in a parsed JSON body. A field that is null counts as not given.

    `now` only bounds `run_at`. Raises ValidationFailed with every problem, up to MAX_PROBLEMS.
    """
    if not isinstance(document, dict):
        raise ValidationFailed(errors=[FieldProblem("", "Must be a JSON object that describes one job.")])
    values, problems = _read_fields(document)
    target = _target(document, values, problems)
    problems += _across_fields(values, now)
    if problems or target is None:
        raise ValidationFailed(errors=problems[:MAX_PROBLEMS])
    return _submission(target, values)


def _read_fields(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[FieldProblem]]:
    values: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    for name, raw in document.items():
        read = _READERS.get(name)
        if read is None:
            problems.append(FieldProblem(pointer_part(name), "There is no such field."))
        elif raw is not None:
            try:
                values[name] = read(raw)
            except Wrong as wrong:
                problems += [FieldProblem(f"/{name}{found.pointer}", found.detail) for found in wrong.problems]
    return values, problems


def _target(document: Mapping[str, Any], values: Mapping[str, Any], problems: list[FieldProblem]) -> Target | None:
    if document.get("url") is None:
        problems.append(FieldProblem("/url", "Is required."))
    if "url" not in values:
        return None
    try:
        return _reachable(parse_target(values["url"], values.get("params")))
    except InvalidTarget as error:
        problems.append(FieldProblem("/url", str(error)))
        return None


def _reachable(target: Target) -> Target:
    """Raises InvalidTarget for what the egress guard would refuse whatever the name resolves to."""
    if rules_of(tuple(settings.EGRESS_ALLOW), tuple(settings.EGRESS_PORTS)).refuses_unseen(target.name, target.port):
        raise InvalidTarget(REFUSAL)
    return target


def _across_fields(values: Mapping[str, Any], now: datetime) -> list[FieldProblem]:
    """Problems that only show when two values are seen together, or one beside the clock."""
    method = values.get("method", Method.GET)
    problems = [
        FieldProblem(f"/{name}", f"A {method} request has no body (RFC 9110 9.3).")
        for name in ("body", "body_base64")
        if values.get(name) and method in _WITHOUT_BODY
    ]
    if "body" in values and "body_base64" in values:
        problems.append(FieldProblem("/body_base64", "Give either body or body_base64."))
    if "run_at" in values and values["run_at"] > now + MAX_RUN_AT_AHEAD:
        problems.append(FieldProblem("/run_at", f"Must not be more than {MAX_RUN_AT_AHEAD.days} days ahead."))
    return problems


def _submission(target: Target, values: Mapping[str, Any]) -> Submission:
    return Submission(
        target=target,
        method=values.get("method", Method.GET.value),
        headers=values.get("headers", {}),
        body=values.get("body", values.get("body_base64")) or None,
        priority=values.get("priority", Priority.NORMAL),
        callback_url=values.get("callback_url", ""),
        tags=values.get("tags", []),
        run_at=values.get("run_at"),
        deadline_seconds=values.get("deadline_seconds", int(settings.JOB_DEADLINE_SECONDS)),
        max_attempts=values.get("max_attempts", settings.MAX_ATTEMPTS),
        max_bytes=values.get("max_bytes", settings.MAX_RESPONSE_BYTES),
        retry_unsafe=values.get("retry_unsafe", False),
        executor=values.get("executor", EXECUTORS["http"]),
        follow_redirects=values.get("follow_redirects", True),
        respect_robots=values.get("respect_robots"),
        proxy=values.get("proxy", ""),
    )


def _callback_url(value: Any) -> str:
    try:
        return _reachable(parse_target(fields.text(value))).url
    except InvalidTarget as error:
        raise Wrong.because(str(error)) from None


def _max_bytes(value: Any) -> int:
    return fields.whole(1, settings.MAX_RESPONSE_BYTES)(value)


def _proxy(value: Any) -> str:
    """Sealed at once: from here on nobody holds the credentials by mistake."""
    try:
        proxy = parse_proxy(fields.text(value))
        check_proxy(proxy)
    except InvalidProxy as error:
        raise Wrong.because(str(error)) from None
    return seal_proxy(proxy)


_READERS: Final[dict[str, Reader[Any]]] = {
    "url": fields.text,
    "method": fields.one_of(_METHODS),
    "params": fields.params,
    "headers": fields.headers,
    "body": fields.body_text,
    "body_base64": fields.body_base64,
    "priority": fields.one_of(PRIORITIES),
    "callback_url": _callback_url,
    "tags": fields.tags,
    "run_at": fields.moment,
    "deadline_seconds": fields.whole(1, 300),
    "max_attempts": fields.whole(1, 10),
    "max_bytes": _max_bytes,
    "retry_unsafe": fields.flag,
    "executor": fields.one_of(EXECUTORS),
    "follow_redirects": fields.flag,
    "respect_robots": fields.flag,
    "proxy": _proxy,
}

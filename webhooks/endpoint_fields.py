"""Reads what a caller says of an endpoint, or tells all that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings

from core.egress import REFUSAL, rules_of
from core.errors import FieldProblem, ValidationFailed
from jobs import fields
from jobs.fields import Reader, Wrong, pointer_part
from jobs.targets import InvalidTarget, parse_target
from webhooks.events import Status
from webhooks.signing import MAX_OVERLAP, OVERLAP

MAX_DESCRIPTION: Final = 200
MAX_PROBLEMS: Final = 100
REPLAYABLE: Final = {"failed": Status.FAILED, "delivered": Status.DELIVERED}


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """The deliveries made from `since` on and before `until` (None: up to now) that stand so."""

    since: datetime
    until: datetime | None
    status: Status


def read_new_endpoint(document: object) -> dict[str, Any]:
    """`url` and perhaps `description`. Raises ValidationFailed."""
    return _read(document, {"url": _url, "description": _description}, required="url")


def read_changes(document: object) -> dict[str, Any]:
    """Any of `url`, `description` and `enabled`. Raises ValidationFailed."""
    return _read(document, {"url": _url, "description": _description, "enabled": fields.flag})


def read_overlap(document: object) -> timedelta:
    """For how long the previous secret signs as well. Raises ValidationFailed."""
    seconds = fields.whole(0, int(MAX_OVERLAP.total_seconds()))
    values = _read(document, {"overlap_seconds": seconds})
    return timedelta(seconds=values["overlap_seconds"]) if "overlap_seconds" in values else OVERLAP


def read_replay_range(document: object) -> ReplayRange:
    """Raises ValidationFailed."""
    readers = {"since": fields.moment, "until": fields.moment, "status": fields.one_of(REPLAYABLE)}
    values = _read(document, readers, required="since")
    return ReplayRange(values["since"], values.get("until"), values.get("status", Status.FAILED))


def _read(document: object, readers: Mapping[str, Reader[Any]], *, required: str = "") -> dict[str, Any]:
    """The values; null counts as not given."""
    if not isinstance(document, dict):
        raise ValidationFailed(errors=[FieldProblem("", "Must be a JSON object.")])
    values: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    for name, raw in document.items():
        if name not in readers:
            problems.append(FieldProblem(pointer_part(name), "There is no such field."))
        elif raw is not None:
            try:
                values[name] = readers[name](raw)
            except Wrong as wrong:
                problems += [FieldProblem(f"/{name}{found.pointer}", found.detail) for found in wrong.problems]
    if required and document.get(required) is None:
        problems.append(FieldProblem(f"/{required}", "Is required."))
    if problems:
        raise ValidationFailed(errors=problems[:MAX_PROBLEMS])
    return values


def _url(value: Any) -> str:
    """In the form in which it is called. What a name resolves to is checked at each try; the rest is known now."""
    try:
        target = parse_target(fields.text(value))
    except InvalidTarget as error:
        raise Wrong.because(str(error)) from None
    rules = rules_of(tuple(settings.EGRESS_ALLOW), tuple(settings.EGRESS_PORTS))
    if rules.refuses_unseen(target.name, target.port):
        raise Wrong.because(REFUSAL)
    return target.url


def _description(value: Any) -> str:
    text = fields.text(value)
    if len(text) > MAX_DESCRIPTION or not text.isprintable():
        raise Wrong.because(f"Must be at most {MAX_DESCRIPTION} printable characters.")
    return text

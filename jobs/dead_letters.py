"""Jobs that failed for good, seen as work for a person: which they are, what they have in common, and a fresh start."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from django.db.models import Count, Max, Q, QuerySet

from core.errors import Conflict, NotFound
from jobs import transitions
from jobs.models import Job
from jobs.states import State

PAGE: Final = 500
REASON: Final = "redriven"
_NAMED: Final = 5  # ids that an error names before it only counts them


class UnknownJob(NotFound):
    """No job has one of the ids."""

    code: ClassVar[str] = "unknown_job"
    default_detail: ClassVar[str] = "There is no such job."


class NotDead(Conflict):
    """One of the jobs did not fail."""

    code: ClassVar[str] = "not_dead"
    default_detail: ClassVar[str] = "Only a job that failed can be redriven."


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters are meant; what is None does not narrow. `hosts` are as they are stored: `name:port`."""

    tenant_id: uuid.UUID | None = None
    hosts: Sequence[str] | None = None
    code: str | None = None

    @property
    def jobs(self) -> QuerySet[Job]:
        """The dead letters that are meant."""
        meant: dict[str, Any] = {"tenant_id": self.tenant_id, "host__in": self.hosts, "error_code": self.code}
        return Job.objects.filter(
            state=State.FAILED, **{lookup: value for lookup, value in meant.items() if value is not None}
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One failed job; the last error tells what a person has to mend."""

    id: uuid.UUID
    tenant: str
    host: str
    code: str
    detail: str
    http_status: int | None
    attempts: int
    url: str
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class Incident:
    """What one host did to many jobs: a hundred failures for one reason are one thing to mend."""

    host: str
    code: str
    count: int
    last_at: datetime


def newest(selection: Selection, limit: int) -> list[DeadLetter]:
    """Up to `limit` dead letters, the newest first."""
    columns = (
        *("id", "tenant__name", "host", "error_code", "error_detail", "error_http_status"),
        *("attempts", "url", "finished_at"),
    )
    rows = selection.jobs.order_by("-finished_at", "-id").values_list(*columns)[:limit]
    return [DeadLetter(*row) for row in rows]


def incidents(selection: Selection, limit: int) -> list[Incident]:
    """Up to `limit` groups of dead letters with the same host and error, the biggest first."""
    groups = (
        selection.jobs.values("host", "error_code")
        .annotate(number=Count("id"), last_at=Max("finished_at"))
        .order_by("-number", "host", "error_code")
        .values_list("host", "error_code", "number", "last_at")
    )
    return [Incident(*row) for row in groups[:limit]]


def of_ids(ids: Sequence[uuid.UUID]) -> QuerySet[Job]:
    """The dead letters with these ids. Raises UnknownJob and NotDead when one of them is none; then none may move."""
    states = {job_id: State(state) for job_id, state in Job.objects.filter(pk__in=ids).values_list("id", "state")}
    unknown = [str(job_id) for job_id in ids if job_id not in states]
    if unknown:
        raise UnknownJob(f"There is no job with the id {_some(unknown)}.")
    alive = [f"{job_id} is {state.value}" for job_id, state in states.items() if state is not State.FAILED]
    if alive:
        raise NotDead(f"Only a job that failed can be redriven: {_some(alive)}.")
    return Job.objects.filter(state=State.FAILED, pk__in=ids)


def redrive(jobs: QuerySet[Job], on_page: Callable[[int], object] = lambda looked_at: None) -> int:
    """Give every failed job among `jobs` a fresh set of attempts; returns how many moved.

    Works in pages, each committed by itself, so it may be stopped at any time and called again. Jobs that somebody else
    moves meanwhile are left to them, and a job that fails again meanwhile is not redriven twice. `on_page` hears after
    each page how many jobs it looked at.
    """
    moved = 0
    for page in _pages(jobs):
        moved += len(transitions.restart(page, reason=REASON, states=[State.FAILED]))
        on_page(len(page))
    return moved


def _pages(jobs: QuerySet[Job]) -> Iterator[list[uuid.UUID]]:
    """The ids of those that have failed by now, oldest first, PAGE at a time; each page begins behind the last one."""
    dead = jobs.filter(state=State.FAILED).order_by("finished_at", "id")
    newest = dead.values_list("finished_at").last()
    if newest is None:
        return
    dead = dead.filter(finished_at__lte=newest[0])
    page = list(dead.values_list("finished_at", "id")[:PAGE])
    while page:
        yield [job_id for _, job_id in page]
        at, last = page[-1]
        beyond = Q(finished_at__gt=at) | Q(id__gt=last)
        page = list(dead.filter(beyond, finished_at__gte=at).values_list("finished_at", "id")[:PAGE])


def _some(items: Sequence[str]) -> str:
    named = ", ".join(items[:_NAMED])
    return named if len(items) <= _NAMED else f"{named} and {len(items) - _NAMED} more"

"""Jobs for a benchmark: many at once, and how far they are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Max, Min

from bench.bucket import delete_prefix
from bench.children import Children
from bench.console import Progress
from jobs import notices
from jobs.models import HostPolicy, Job
from jobs.states import FINAL, State
from tenants.models import Tenant

START_SECONDS = 60.0  # for roles to start and run their first jobs, on a machine that does other things as well
# What limits a host belongs to the target, not to the worker that is measured.
LIMITS_NOTHING = {"rate": 1e6, "burst": 1_000_000, "concurrency": 1_000_000}
UNLIMITED = {"DEFAULT_HOST_RATE": "100000", "DEFAULT_HOST_BURST": "100000", "DEFAULT_HOST_CONCURRENCY": "1000"}


class Backlog:
    """The jobs of one tenant of its own, all for one target on loopback.

    Leaving the context deletes their results; the rows go with their database.
    """

    def __init__(self) -> None:
        self.tenant = Tenant.objects.create(name=f"bench-{uuid.uuid4().hex[:12]}")

    def submit(self, address: str, count: int, *, unlimited: bool = True, **fields: Any) -> list[uuid.UUID]:
        """Commit `count` jobs at once, then send the notice, as intake does; `fields` are columns of a job.

        An `unlimited` target is given the policy that limits nothing, unless it has one.
        """
        if unlimited:
            HostPolicy.objects.get_or_create(host=urlsplit(address).netloc, defaults=LIMITS_NOTHING)
        jobs = [self._job(address, fields) for _ in range(count)]
        Job.objects.bulk_create(jobs)
        notices.work_waits()
        return [job.id for job in jobs]

    def _job(self, address: str, fields: Mapping[str, Any]) -> Job:
        usual: dict[str, Any] = {"deadline_seconds": 30, "max_attempts": 5, "max_bytes": settings.MAX_RESPONSE_BYTES}
        return Job(tenant=self.tenant, url=address, host=urlsplit(address).netloc, **{**usual, **fields})

    def finish(self, children: Children, ids: list[uuid.UUID], *, seconds: float) -> None:
        """Wait until all of `ids` have succeeded. Raises BenchFailed."""
        self.end(children, ids, seconds=seconds)
        children.wait_until(lambda: self._succeeded(ids), seconds=0, what="every job succeeded")

    def end(self, children: Children, ids: list[uuid.UUID], *, seconds: float) -> None:
        """Wait until all of `ids` have ended, well or not. Raises BenchFailed."""
        progress = Progress("jobs ended", len(ids))

        def ended() -> bool:
            done = Job.objects.filter(id__in=ids, state__in=FINAL).count()
            progress.show(done)
            return done == len(ids)

        children.wait_until(ended, seconds=seconds, what="all jobs ended")

    def _succeeded(self, ids: list[uuid.UUID]) -> bool:
        return Job.objects.filter(id__in=ids, state=State.SUCCEEDED).count() == len(ids)

    def seconds(self, ids: list[uuid.UUID]) -> float:
        """From the first claim to the last finish, by the database's clock."""
        ends = Job.objects.filter(id__in=ids).aggregate(first=Min("claimed_at"), last=Max("finished_at"))
        return float((ends["last"] - ends["first"]).total_seconds())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        delete_prefix(f"results/{self.tenant.id}/")

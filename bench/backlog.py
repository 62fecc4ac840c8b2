"""Jobs for a benchmark: many at once, and how far they are."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db.models import Max, Min

from bench.bucket import delete_prefix
from bench.children import Children
from bench.console import Progress
from bench.target import LOOPBACK
from jobs import notices
from jobs.models import Job
from jobs.states import FINAL, State
from tenants.models import Tenant

# What limits a host belongs to the target, not to the worker that is measured.
UNLIMITED = {"DEFAULT_HOST_RATE": "100000", "DEFAULT_HOST_BURST": "100000", "DEFAULT_HOST_CONCURRENCY": "1000"}


class Backlog:
    """The jobs of one tenant of its own, all for one target on loopback."""

    def __init__(self, port: int) -> None:
        self.tenant = Tenant.objects.create(name=f"bench-{uuid.uuid4().hex[:12]}")
        self._host = f"{LOOPBACK}:{port}"

    def submit(self, path: str, count: int) -> list[uuid.UUID]:
        """Commit `count` jobs at once, then send the notice, as intake does."""
        jobs = [self._job(path) for _ in range(count)]
        Job.objects.bulk_create(jobs)
        notices.work_waits()
        return [job.id for job in jobs]

    def _job(self, path: str) -> Job:
        return Job(
            tenant=self.tenant,
            url=f"http://{self._host}{path}",
            host=self._host,
            deadline_seconds=30,
            max_attempts=5,
            max_bytes=settings.MAX_RESPONSE_BYTES,
        )

    def finish(self, children: Children, ids: list[uuid.UUID], *, seconds: float) -> None:
        """Wait until all of `ids` have succeeded. Raises BenchFailed."""
        progress = Progress("jobs ended", len(ids))

        def ended() -> bool:
            done = Job.objects.filter(id__in=ids, state__in=FINAL).count()
            progress.show(done)
            return done == len(ids)

        children.wait_until(ended, seconds=seconds, what="all jobs ended")
        children.wait_until(lambda: self._succeeded(ids), seconds=0, what="every job succeeded")

    def _succeeded(self, ids: list[uuid.UUID]) -> bool:
        return Job.objects.filter(id__in=ids, state=State.SUCCEEDED).count() == len(ids)

    def span(self, ids: list[uuid.UUID]) -> timedelta:
        """From the first claim to the last finish, by the database's clock."""
        ends = Job.objects.filter(id__in=ids).aggregate(first=Min("claimed_at"), last=Max("finished_at"))
        return timedelta(seconds=(ends["last"] - ends["first"]).total_seconds())

    def clear(self) -> None:
        """Delete the results; the rows go with their database."""
        delete_prefix(f"results/{self.tenant.id}/")

"""What must hold after a run, whatever happened in it: judged from the rows, the target's log and the bucket."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import boto3
import psycopg
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from psycopg.rows import class_row

from tests.faults.load import Wish
from tests.faults.target import Visit, body_of

FINAL: Final = ("succeeded", "failed", "cancelled")
READERS: Final = 8


@dataclass(frozen=True, slots=True)
class JobRow:
    """What a job has become; `finals` is how often its trail says that it ended."""

    id: uuid.UUID
    state: str
    method: str
    retry_unsafe: bool
    claim_no: int
    attempts: int
    max_attempts: int
    error_code: str
    result_key: str
    result_sha256: str
    told: bool
    finals: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt; times in Unix seconds."""

    job_id: uuid.UUID
    claim_no: int
    outcome: str
    worker: str
    started_at: float
    finished_at: float

    @property
    def pid(self) -> int:
        """Of the worker process: its name is host:pid:start."""
        return int(self.worker.split(":")[-2])


@dataclass(frozen=True, slots=True)
class Frozen:
    """A worker process that was stopped from `begin` to `end` (Unix seconds); what it does next, a zombie does."""

    pid: int
    begin: float
    end: float


@dataclass(slots=True)
class Findings:
    """Each list names what broke a rule; all are empty after a good run. `states` counts the ends and their reasons."""

    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    double_finished: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    repeated_posts: list[str] = field(default_factory=list)
    over_max: list[str] = field(default_factory=list)
    trail_broken: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    fenced_overlaps: int = 0

    @property
    def broken(self) -> dict[str, list[str]]:
        """The rules that were broken, with up to five examples each."""
        rules = (
            "lost",
            "stuck",
            "double_finished",
            "overlapping",
            "repeated_posts",
            "over_max",
            "trail_broken",
            "orphans",
        )
        return {name: getattr(self, name)[:5] for name in rules if getattr(self, name)}


_JOBS: Final = """
SELECT j.id, j.state, j.method, j.retry_unsafe, j.claim_no, j.attempts, j.max_attempts, j.error_code, j.result_key,
    j.result_sha256, j.finish_published_at IS NOT NULL AS told, count(e.seq) AS finals
FROM jobs_job j LEFT JOIN jobs_jobevent e ON e.job_id = j.id AND e.to_state = ANY(%s) GROUP BY j.id
"""
_ATTEMPTS: Final = """
SELECT job_id, claim_no, outcome, worker, extract(epoch FROM started_at)::float8 AS started_at,
    extract(epoch FROM finished_at)::float8 AS finished_at
FROM jobs_attempt ORDER BY job_id, claim_no
"""
_ENDS: Final = "SELECT extract(epoch FROM finished_at)::float8 FROM jobs_job WHERE finished_at IS NOT NULL ORDER BY 1"
_UNFINISHED: Final = "SELECT count(*) FROM jobs_job WHERE finished_at IS NULL OR finish_published_at IS NULL"


class Evidence:
    """The rows of a run, read when made; and its bucket."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        with psycopg.connect(settings["DATABASE_URL"]) as link:
            self.jobs = {
                row.id: row for row in link.cursor(row_factory=class_row(JobRow)).execute(_JOBS, [list(FINAL)])
            }
            self.attempts: dict[uuid.UUID, list[AttemptRow]] = defaultdict(list)
            for row in link.cursor(row_factory=class_row(AttemptRow)).execute(_ATTEMPTS):
                self.attempts[row.job_id].append(row)
            self.ends = [float(row[0]) for row in link.execute(_ENDS)]


class Bucket:
    """The results as S3 gives them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._name = settings["S3_BUCKET"]
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=settings["S3_ENDPOINT_URL"],
            aws_access_key_id=settings["S3_ACCESS_KEY_ID"],
            aws_secret_access_key=settings["S3_SECRET_ACCESS_KEY"],
            region_name=settings["S3_REGION"],
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=READERS),
        )

    def list(self) -> set[str]:
        """The keys of everything in it."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name)
        return {entry["Key"] for page in pages for entry in page.get("Contents", ())}

    def read(self, key: str) -> bytes | None:
        """An object; None when it cannot be had."""
        try:
            return bytes(self._client.get_object(Bucket=self._name, Key=key)["Body"].read())
        except (BotoCoreError, ClientError):
            return None


def unfinished(database_url: str) -> int:
    """How many jobs have not ended, or ended untold."""
    with psycopg.connect(database_url) as link:
        row = link.execute(_UNFINISHED).fetchone()
        return int(row[0]) if row else 0


def orphans(evidence: Evidence, keys: Iterable[str]) -> list[str]:
    """Objects that no row names."""
    return sorted(set(keys) - {row.result_key for row in evidence.jobs.values()})


def judge(evidence: Evidence, accepted: Mapping[str, Wish], bucket: Bucket) -> Findings:
    """Everything that the rows and the bucket tell."""
    found = Findings()
    for job_id in accepted:
        if uuid.UUID(job_id) not in evidence.jobs:
            found.lost.append(f"{job_id}: accepted, and no row")
    for row in evidence.jobs.values():
        _judge_row(row, evidence.attempts[row.id], found)
    found.lost += _unreadable(evidence, accepted, bucket)
    found.orphans = orphans(evidence, bucket.list())
    return found


def _judge_row(row: JobRow, attempts: Sequence[AttemptRow], found: Findings) -> None:
    found.states[f"{row.state} {row.error_code if row.state == 'failed' else ''}".strip()] += 1
    if row.state not in FINAL or not row.told:
        found.stuck.append(f"{row.id}: {row.state}{'' if row.told else ', not told of'}")
    if row.finals > 1 or sum(one.outcome == "succeeded" for one in attempts) > 1:
        found.double_finished.append(f"{row.id}: ended {row.finals} times")
    if row.attempts > row.max_attempts:
        found.over_max.append(f"{row.id}: {row.attempts} of {row.max_attempts}")
    if row.state in FINAL and [one.claim_no for one in attempts] != list(range(1, row.claim_no + 1)):
        found.trail_broken.append(f"{row.id}: {row.claim_no} claims, {len(attempts)} of them on record")


def _unreadable(evidence: Evidence, accepted: Mapping[str, Wish], bucket: Bucket) -> list[str]:
    succeeded = [
        (row, accepted[str(row.id)])
        for row in evidence.jobs.values()
        if row.state == "succeeded" and str(row.id) in accepted
    ]
    with ThreadPoolExecutor(READERS) as readers:
        bodies = readers.map(lambda pair: bucket.read(pair[0].result_key), succeeded)
    return [
        f"{row.id}: {'no object' if body is None else 'wrong bytes'} under {row.result_key}"
        for (row, wish), body in zip(succeeded, bodies, strict=True)
        if body != body_of(wish.job, wish.size) or hashlib.sha256(body).hexdigest() != row.result_sha256
    ]


def judge_visits(
    visits: Sequence[Visit],
    evidence: Evidence,
    accepted: Mapping[str, Wish],
    frozen: Sequence[Frozen],
    *,
    wake_seconds: float,
    found: Findings,
) -> None:
    """What the target saw: no job with two live attempts at once, no POST acting twice that must not.

    Two requests of one job may overlap in one case: the lease of a process that was stopped ran out, so that its
    claim is fenced and the job runs elsewhere, and the stopped process had no chance to notice. The overlap must lie
    between the recorded end of that lease and the moment at which the process, going on, has looked at its leases:
    `wake_seconds` after it was let go.
    """
    of_job: dict[str, list[Visit]] = defaultdict(list)
    for visit in visits:
        of_job[visit.job].append(visit)
    for job_id, wish in accepted.items():
        seen = of_job[wish.job]
        row = evidence.jobs.get(uuid.UUID(job_id))
        if row is not None and row.method == "POST" and not row.retry_unsafe and len(seen) > 1:
            found.repeated_posts.append(f"{job_id}: {len(seen)} times")
        windows = _zombie_windows(evidence.attempts[uuid.UUID(job_id)], frozen, wake_seconds)
        for one, other in combinations(seen, 2):
            begin, end = max(one.start, other.start), min(_end(one), _end(other))
            if begin >= end:
                continue
            if any(opens <= begin and end <= closes for opens, closes in windows):
                found.fenced_overlaps += 1
            else:
                found.overlapping.append(f"{job_id}: for {end - begin:.3f} s from {begin:.3f}")


def _zombie_windows(
    attempts: Sequence[AttemptRow], frozen: Sequence[Frozen], wake_seconds: float
) -> list[tuple[float, float]]:
    return [
        (attempt.finished_at, stop.end + wake_seconds)
        for attempt in attempts
        if attempt.outcome == "lease_expired"
        for stop in frozen
        if stop.pid == attempt.pid and stop.begin <= attempt.finished_at
    ]


def _end(visit: Visit) -> float:
    return float("inf") if visit.end is None else visit.end

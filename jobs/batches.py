"""Many jobs in one call: each row by itself, stored by few statements in one transaction."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar, Final

from django.db import connection, transaction

from core.errors import ServiceError, ValidationFailed
from core.json_rows import Row
from jobs import admission, idempotency, notices, refusals
from jobs.admission import TooManyQueued
from jobs.idempotency import IdempotencyKeyInFlight, KeyUse, RememberedBatch
from jobs.services import job_parameters
from jobs.submission import Submission, read_submission
from tenants import throttle
from tenants.models import Tenant

MAX_JOBS: Final = 10_000
MAX_ROW_PROBLEMS: Final = 10  # told of one row
MAX_PROBLEMS: Final = 10_000  # told in all; the rows behind are refused with their code and a sentence
STATEMENT_ROWS: Final = 1000
STATEMENT_CHARACTERS: Final = 4 * 1024 * 1024  # so that rows of 1 MiB do not make one statement of 32

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_ROW: Final = json.JSONEncoder(default=str)

Told = dict[str, Any]
"""What a caller is told of a refused row: code, detail and, where values are wrong, errors."""


class TooManyJobs(ValidationFailed):
    """More rows than one call may bring."""

    code: ClassVar[str] = "too_many_jobs"
    default_detail: ClassVar[str] = f"A batch may have at most {MAX_JOBS:,} jobs; send the others in another call."


class EmptyBatch(ValidationFailed):
    """Not one row."""

    code: ClassVar[str] = "empty_batch"
    default_detail: ClassVar[str] = "A batch has at least one job."


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one call, by their index: those that may be stored, and what is told of the others."""

    submissions: Mapping[int, Submission]
    rejected: Mapping[int, Told]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """What became of a batch: the jobs made, in the order of their rows, and the rows that made none, by index."""

    job_ids: Sequence[uuid.UUID]
    rejected: Mapping[int, Told]
    replayed: bool = False

    def outcomes(self) -> Iterator[tuple[int, uuid.UUID | Told]]:
        """Of each row, in order: its job, or why there is none."""
        job_ids = iter(self.job_ids)
        for index in range(len(self.job_ids) + len(self.rejected)):
            told = self.rejected.get(index)
            yield index, next(job_ids) if told is None else told


def read_batch(rows: Iterable[Row], *, now: datetime, with_key: bool) -> Batch:
    """Reads each row as `read_submission` does; only a batch `with_key` needs its fingerprint.

    Raises TooManyJobs, EmptyBatch and what `rows` raises.
    """
    reader = _Reader(now, hashlib.sha256() if with_key else None)
    for index, row in enumerate(rows):
        if index == MAX_JOBS:
            raise TooManyJobs
        reader.read(index, row)
    if not reader.submissions and not reader.rejected:
        raise EmptyBatch
    return Batch(reader.submissions, reader.rejected, reader.fingerprint)


class _Reader:
    def __init__(self, now: datetime, digest: hashlib._Hash | None) -> None:
        self._now = now
        self._digest = digest
        self._problems = MAX_PROBLEMS
        self.submissions: dict[int, Submission] = {}
        self.rejected: dict[int, Told] = {}

    @property
    def fingerprint(self) -> str:
        return "" if self._digest is None else self._digest.hexdigest()

    def read(self, index: int, row: Row) -> None:
        if self._digest is not None:
            self._digest.update(_canonical(row))
        try:
            if row.error is not None:
                raise row.error
            self.submissions[index] = read_submission(row.value, now=self._now)
        except ServiceError as error:
            told = _told(error, min(MAX_ROW_PROBLEMS, self._problems))
            self._problems -= len(told.get("errors", ()))
            self.rejected[index] = told


def _canonical(row: Row) -> bytes:
    """One spelling for all that say the same, as for a single job (`idempotency.fingerprint`)."""
    if row.error is None:
        return _CANONICAL.encode(row.value).encode() + b"\n"
    raw = row.raw if isinstance(row.raw, bytes) else row.raw.encode()
    return b"?" + hashlib.sha256(raw).digest()


def _told(error: ServiceError, at_most: int) -> Told:
    told: Told = {"code": error.code, "detail": error.detail}
    if error.errors and at_most > 0:
        told["errors"] = [{"pointer": found.pointer, "detail": found.detail} for found in error.errors[:at_most]]
    return told


def submit(tenant: Tenant, batch: Batch, use: KeyUse | None = None) -> BatchReceipt:
    """Store the batch's jobs, once per idempotency key, and wake the publisher once after the commit.

    The rows for which the tenant's queue has no room are refused like wrong ones, from the first such on. Where nothing
    is stored, nothing is remembered. Raises SubmitRateExceeded, TooManyQueued (no room for even one),
    IdempotencyKeyReused, IdempotencyKeyInFlight.
    """
    earlier = None if use is None else idempotency.look_up_batch(use)  # before the rate: a repetition makes no jobs
    if earlier is not None:
        return BatchReceipt(earlier.job_ids, earlier.rejected, replayed=True)
    if not batch.submissions:
        return BatchReceipt([], batch.rejected)
    with refusals.counted(jobs=len(batch.submissions)):
        throttle.take(tenant, len(batch.submissions))
        receipt = _stored(tenant, batch, use)
    if not receipt.replayed:
        refusals.note(TooManyQueued, len(receipt.rejected) - len(batch.rejected))
    return receipt


def _stored(tenant: Tenant, batch: Batch, use: KeyUse | None) -> BatchReceipt:
    for _ in range(2):  # the second look sees what another request committed between the first look and its lock
        receipt = _store_once(tenant, batch, use)
        if receipt is not None:
            return receipt
    raise IdempotencyKeyInFlight


def _store_once(tenant: Tenant, batch: Batch, use: KeyUse | None) -> BatchReceipt | None:
    with transaction.atomic():
        earlier = None if use is None else idempotency.look_up_batch(use)
        if earlier is not None:
            return BatchReceipt(earlier.job_ids, earlier.rejected, replayed=True)
        room = admission.take_room(tenant, len(batch.submissions))
        made = RememberedBatch(
            _insert(tenant.id, islice(batch.submissions.values(), room)), _with_unplaced(tenant, batch, room)
        )
        if use is not None and not idempotency.remember_batch(use, made):
            transaction.set_rollback(True)
            return None
        transaction.on_commit(notices.work_waits)
    return BatchReceipt(made.job_ids, made.rejected)


def _with_unplaced(tenant: Tenant, batch: Batch, room: int) -> Mapping[int, Told]:
    """What is told of the rows that were wrong, and of those that found no room."""
    unplaced = list(islice(batch.submissions, room, None))
    if not unplaced:
        return batch.rejected
    told = _told(admission.refusal_of(tenant), 0)
    return {**batch.rejected, **dict.fromkeys(unplaced, told)}


def _insert(tenant_id: uuid.UUID, submissions: Iterable[Submission]) -> list[uuid.UUID]:
    made: list[uuid.UUID] = []
    with connection.cursor() as cursor:
        for rows in _statements(tenant_id, submissions, made):
            cursor.execute(_INSERT, [f"[{','.join(rows)}]"])
    return made


def _statements(tenant_id: uuid.UUID, submissions: Iterable[Submission], made: list[uuid.UUID]) -> Iterator[list[str]]:
    """The rows of each statement, as JSON; their ids are added to `made`."""
    rows: list[str] = []
    size = 0
    for submission in submissions:
        parameters = job_parameters(tenant_id, submission)
        made.append(parameters["id"])
        rows.append(_json_row(parameters, submission))
        size += len(rows[-1])
        if len(rows) == STATEMENT_ROWS or size >= STATEMENT_CHARACTERS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _json_row(parameters: dict[str, Any], submission: Submission) -> str:
    body = None if submission.body is None else f"\\x{submission.body.hex()}"
    return _ROW.encode({**parameters, "headers": submission.headers, "body": body})


# What `services` inserts one by one; a test holds the rows of both against each other.
_TYPES: Final = {
    "id": "uuid",
    "tenant_id": "uuid",
    "url": "text",
    "host": "text",
    "method": "text",
    "headers": "jsonb",
    "body": "bytea",
    "priority": "smallint",
    "callback_url": "text",
    "tags": "text[]",
    "run_at": "timestamptz",
    "deadline_seconds": "smallint",
    "max_attempts": "smallint",
    "max_bytes": "bigint",
    "retry_unsafe": "boolean",
    "executor": "text",
    "follow_redirects": "boolean",
    "respect_robots": "boolean",
    "proxy": "text",
}
_COLUMNS: Final = ", ".join(_TYPES)
_INSERT: Final = f"""
INSERT INTO jobs_job (
    {_COLUMNS}, eligible_at,
    state, reason, claim_no, worker, attempts, losses, error_code, error_detail,
    result_key, result_content_type, result_sha256, result_final_url)
SELECT {_COLUMNS}, greatest(statement_timestamp(), run_at),
    'queued', 'submitted', 0, '', 0, 0, '', '', '', '', '', ''
FROM json_to_recordset(%s) AS row ({", ".join(f"{name} {kind}" for name, kind in _TYPES.items())})
"""  # noqa: S608  all parts are constants

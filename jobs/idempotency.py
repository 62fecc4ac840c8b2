"""Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): the same key and body gets the same receipt.

Everything happens inside the intake's own transaction. Who comes first holds an advisory lock on the key until its
commit; who comes meanwhile is told to come again. The unique constraint, not the lock, makes two jobs impossible.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import connection

from core.errors import Conflict, MalformedRequest, ValidationFailed
from jobs.states import FINAL

RETRY_AFTER_SECONDS: Final = 1
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED: Final = re.compile(r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"')  # a String of RFC 9651 3.3.3


class InvalidIdempotencyKey(MalformedRequest):
    """The header does not hold a key."""

    code: ClassVar[str] = "invalid_idempotency_key"
    default_detail: ClassVar[str] = "An Idempotency-Key is 1 to 255 visible ASCII characters, bare or in double quotes."


class IdempotencyKeyReused(ValidationFailed):
    """The key came before, with another body."""

    code: ClassVar[str] = "idempotency_key_reused"
    default_detail: ClassVar[str] = "This Idempotency-Key was used with another body; use a new key for a new job."


class IdempotencyKeyInFlight(Conflict):
    """The first request with this key has not been answered yet."""

    status: ClassVar[HTTPStatus] = HTTPStatus.CONFLICT
    code: ClassVar[str] = "idempotency_key_in_flight"
    default_detail: ClassVar[str] = "A request with this Idempotency-Key is being handled; repeat yours in a moment."

    def __init__(self) -> None:
        super().__init__(retry_after=RETRY_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A key as it came with one request; `call` is the method and path that it belongs to."""

    tenant_id: uuid.UUID
    call: str
    key: str
    fingerprint: str

    @property
    def lock_id(self) -> int:
        """A signed 64-bit number for PostgreSQL's advisory locks; a chance clash only makes one caller come again."""
        digest = hashlib.sha256(f"{self.tenant_id} {self.call} {self.key}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The job that the first request with this key made."""

    job_id: uuid.UUID
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RememberedBatch:
    """The jobs that the first request with this key made, in the order of its rows, and what it was told of its other
    rows, by their index."""

    job_ids: Sequence[uuid.UUID]
    rejected: Mapping[int, dict[str, Any]]


def read_key(header: str) -> str:
    """The key in the header's value; quoted and bare spellings of one key are equal. Raises InvalidIdempotencyKey."""
    key = header.strip(" \t")
    if key.startswith('"'):
        if not _QUOTED.fullmatch(key):
            raise InvalidIdempotencyKey
        key = re.sub(r"\\(.)", r"\1", key[1:-1])
    if not _VISIBLE.fullmatch(key):
        raise InvalidIdempotencyKey
    return key


def fingerprint(document: object) -> str:
    """SHA-256 of the parsed body in one canonical spelling, so that white space and the order of names do not count."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


_LOOK_UP = """
SELECT pg_try_advisory_xact_lock(%(lock)s), r.id, r.fingerprint, r.job_id, j.created_at, r.job_ids, r.rejected,
    r.created_at > now() - %(kept)s OR j.state <> ALL(%(final)s) OR EXISTS (
        SELECT FROM jobs_job b WHERE b.id = ANY(r.job_ids) AND b.state <> ALL(%(final)s))
FROM (SELECT) AS one
LEFT JOIN jobs_idempotencyrecord r ON r.tenant_id = %(tenant)s AND r.call = %(call)s AND r.key = %(key)s
LEFT JOIN jobs_job j ON j.id = r.job_id
"""


def look_up(use: KeyUse) -> Remembered | None:
    """What this key made before, or None: then the caller makes the job and binds the key to it in this transaction.

    Raises IdempotencyKeyReused or IdempotencyKeyInFlight.
    """
    found = _found(use)
    return None if found is None else Remembered(found[0], found[1])


def look_up_batch(use: KeyUse) -> RememberedBatch | None:
    """The same for a key that came with a batch."""
    found = _found(use)
    if found is None:
        return None
    return RememberedBatch(found[2], dict(json.loads(found[3])))


def _found(use: KeyUse) -> list[Any] | None:
    """job_id, created_at, job_ids and rejected of what the key made."""
    parameters: dict[str, Any] = {
        "lock": use.lock_id,
        "tenant": use.tenant_id,
        "call": use.call,
        "key": use.key,
        "kept": _kept(),
        "final": sorted(FINAL),
    }
    with connection.cursor() as cursor:
        cursor.execute(_LOOK_UP, parameters)
        locked, record_id, known_fingerprint, *told, live = cursor.fetchone()
        if live:
            if known_fingerprint != use.fingerprint:
                raise IdempotencyKeyReused
            return list(told)
        if not locked:
            raise IdempotencyKeyInFlight
        if record_id is not None:
            cursor.execute("DELETE FROM jobs_idempotencyrecord WHERE id = %s", [record_id])
    return None


_REMEMBER_BATCH: Final = """
INSERT INTO jobs_idempotencyrecord (tenant_id, call, key, fingerprint, job_ids, rejected)
VALUES (%(key_tenant)s, %(key_call)s, %(key)s, %(key_fingerprint)s, %(job_ids)s, %(rejected)s)
ON CONFLICT (tenant_id, call, key) DO NOTHING RETURNING id
"""


def remember_batch(use: KeyUse, batch: RememberedBatch) -> bool:
    """Bind the key to a batch stored in this transaction; False where another request has committed the key."""
    made = {"job_ids": list(batch.job_ids), "rejected": json.dumps(list(batch.rejected.items()))}
    with connection.cursor() as cursor:
        cursor.execute(_REMEMBER_BATCH, remember_parameters(use) | made)
        return cursor.fetchone() is not None


# Part of the intake's statement, in which `job` is the row just inserted: binds the key, unless it is bound already.
REMEMBER: Final = """
INSERT INTO jobs_idempotencyrecord (tenant_id, call, key, fingerprint, job_id)
SELECT %(key_tenant)s, %(key_call)s, %(key)s, %(key_fingerprint)s, job.id FROM job
ON CONFLICT (tenant_id, call, key) DO NOTHING RETURNING id
"""


def remember_parameters(use: KeyUse) -> dict[str, Any]:
    """What REMEMBER asks for."""
    return {
        "key_tenant": use.tenant_id,
        "key_call": use.call,
        "key": use.key,
        "key_fingerprint": use.fingerprint,
    }


_PURGE = """
DELETE FROM jobs_idempotencyrecord WHERE id IN (
    SELECT r.id FROM jobs_idempotencyrecord r LEFT JOIN jobs_job j ON j.id = r.job_id
    WHERE r.created_at <= now() - %(kept)s AND (j.state = ANY(%(final)s) OR (r.job_ids IS NOT NULL AND NOT EXISTS (
        SELECT FROM jobs_job b WHERE b.id = ANY(r.job_ids) AND b.state <> ALL(%(final)s))))
    ORDER BY r.created_at LIMIT %(limit)s FOR UPDATE OF r SKIP LOCKED)
"""


def purge_expired(limit: int) -> int:
    """Forget up to `limit` keys that are past their time and whose jobs have ended; returns how many."""
    parameters: dict[str, Any] = {"kept": _kept(), "final": sorted(FINAL), "limit": limit}
    with connection.cursor() as cursor:
        cursor.execute(_PURGE, parameters)
        return int(cursor.rowcount)


def _kept() -> timedelta:
    return timedelta(hours=settings.IDEMPOTENCY_HOURS)

"""Which of two answers about one job is the newer, and how an answer is written down in the cache.

claim_no never falls, and between two claims a job goes from running over queued to an end; so the two order all
answers but those around a new start, which takes an ended job back to queued under the same claim_no. There the time
of the read decides, by the database's clock: whoever changes a job outside that order, or ends it, lays a tombstone
with the time at which the change could be seen, and what was read before it is not taken any more.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from jobs.models import Job
from jobs.states import State
from query.answers import JobAnswer

RANK: Final[dict[str, int]] = {
    State.RUNNING: 1,
    State.QUEUED: 2,  # of one claim: what its worker gave back, or nobody has claimed yet
    State.SUCCEEDED: 3,
    State.FAILED: 3,
    State.CANCELLED: 3,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """How far a job had come, and when that was read, in microseconds of the database's clock."""

    claim_no: int
    rank: int
    read_at: int

    @classmethod
    def of(cls, job: Job, now: datetime) -> Version:
        """The version of a row that was read at `now`, by the database's clock."""
        return cls(job.claim_no, RANK[job.state], microseconds(now))


def microseconds(moment: datetime) -> int:
    """Since 1970; exact, as a float would not be."""
    return (moment - _EPOCH) // _MICROSECOND


def written(answer: JobAnswer) -> bytes:
    """What stands behind the version: whose it is, the ETag, and from the next line on the body."""
    return b"%s %s\n%s" % (answer.tenant_id.hex.encode(), answer.etag.encode(), answer.body)


def read(kept: bytes | None) -> JobAnswer | None:
    """The answer in what the cache holds; None for nothing, a tombstone, and what another release wrote."""
    if kept is None:
        return None
    head, _, body = kept.partition(b"\n")
    fields = head.split(b" ")
    if len(fields) != 6 or not body:
        return None
    return JobAnswer(uuid.UUID(hex=fields[4].decode()), fields[5].decode(), body)

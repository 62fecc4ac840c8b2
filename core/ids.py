"""Identifiers: UUID version 7 (RFC 9562), made here so that time order, paging and partitions all come from the key."""

import uuid
from datetime import UTC, datetime, timedelta

import uuid_utils.compat


def new_id() -> uuid.UUID:
    """A new UUIDv7; within one process each one sorts after the one before."""
    return uuid_utils.compat.uuid7()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def first_id(moment: datetime, later: timedelta = timedelta()) -> uuid.UUID:
    """The least UUID that a UUIDv7 made at `moment` (or `later` than it) or after can be; of times that it cannot hold,
    the nearest."""
    milliseconds = (moment - _EPOCH + later) // _MILLISECOND
    return uuid.UUID(int=min(max(milliseconds, 0), 2**48 - 1) << 80)

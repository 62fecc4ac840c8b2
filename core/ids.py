"""Identifiers: UUID version 7 (RFC 9562), made here so that time order, paging and partitions all come from the key."""

import uuid

import uuid_utils.compat


def new_id() -> uuid.UUID:
    """A new UUIDv7; within one process each one sorts after the one before."""
    return uuid_utils.compat.uuid7()

"""Removes from the object storage what a benchmark put there."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.storage import storages


def client() -> Any:
    """boto3's client with the service's settings."""
    return storages["results"].bucket.meta.client  # type: ignore[attr-defined]  # STORAGES says that it is S3


def keys_of(prefix: str) -> list[str]:
    """The keys of all objects that start with `prefix`."""
    pages = client().get_paginator("list_objects_v2").paginate(Bucket=settings.S3_BUCKET, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def delete_prefix(prefix: str) -> None:
    """Delete all objects whose key starts with `prefix`."""
    s3 = client()
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=settings.S3_BUCKET, Prefix=prefix):
        keys = [{"Key": entry["Key"]} for entry in page.get("Contents", ())]
        if keys:
            s3.delete_objects(Bucket=settings.S3_BUCKET, Delete={"Objects": keys, "Quiet": True})

"""Where responses lie: one object per claim in an S3 bucket.

Small bodies go up from memory through obstore, bodies that were spooled to disk go up from the file through boto3: what
each costs is in docs/adr/0005. Links are signed for the public address and always download, never render.
"""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Protocol

import obstore
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from django.core.files.storage import storages
from obstore.exceptions import BaseError as ObstoreError
from obstore.store import S3Store
from storages.backends.s3 import S3Storage

if TYPE_CHECKING:
    from obstore.store import S3Config

IN_MEMORY_BYTES = 1024 * 1024
UPLOAD_THREADS = 4
UPLOAD_SECONDS = 120.0
_ATTRIBUTES = {"Content-Type": "application/octet-stream", "Content-Disposition": "attachment"}


class StorageUnavailable(Exception):
    """The object storage did not take or give what it was asked; trying again later may work."""


class Body(Protocol):
    """A body that was received whole: `file` stands at its start."""

    size: int
    file: IO[bytes]


def result_key(tenant_id: uuid.UUID, job_id: uuid.UUID, claim_no: int) -> str:
    """The object's name: `results/<tenant>/<yyyy>/<mm>/<dd>/<job>/<claim_no>`, dated by the job's own id.

    The claim number is in it so that an attempt that lost its lease cannot overwrite the result of the one after it.
    """
    made = datetime.fromtimestamp((job_id.int >> 80) / 1000, tz=UTC)  # RFC 9562, 5.7: 48 bits of Unix milliseconds
    return f"results/{tenant_id}/{made:%Y/%m/%d}/{job_id}/{claim_no}"


def signed_link(key: str, *, filename: str) -> str:
    """A link to the object that works for RESULT_LINK_SECONDS and downloads it as `filename`.

    The storage is not asked. Raises StorageUnavailable when there is no access key to sign with.
    """
    parameters = {
        "ResponseContentDisposition": f'attachment; filename="{filename}"',
        "ResponseContentType": "application/octet-stream",
    }
    try:
        return str(_storage("result_links").url(key, parameters=parameters, expire=settings.RESULT_LINK_SECONDS))
    except BotoCoreError as error:
        raise StorageUnavailable(type(error).__name__) from error


def delete(key: str) -> None:
    """Delete the object; one that is not there is no error. Raises StorageUnavailable."""
    try:
        _storage("results").delete(key)
    except (BotoCoreError, ClientError) as error:
        raise StorageUnavailable(type(error).__name__) from error


def ping() -> None:
    """One cheap question to the storage. Raises StorageUnavailable when it does not answer or the bucket is missing."""
    try:
        _client().head_bucket(Bucket=settings.S3_BUCKET)
    except (BotoCoreError, ClientError) as error:
        raise StorageUnavailable(type(error).__name__) from error


class ResultStore:
    """The worker's way to the storage, for use inside its event loop."""

    def __init__(self) -> None:
        self._small = S3Store(
            settings.S3_BUCKET,
            config=_obstore_config(),
            client_options={
                "timeout": timedelta(seconds=20),
                "connect_timeout": timedelta(seconds=3),
                "allow_http": True,
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
        )
        self._threads = ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="upload")

    async def upload(self, key: str, body: Body) -> None:
        """Store the body under `key`; it is there in whole when this returns. Raises StorageUnavailable."""
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                if body.size <= IN_MEMORY_BYTES:
                    await obstore.put_async(
                        self._small, key, body.file.read(), attributes=_ATTRIBUTES, use_multipart=False
                    )
                else:
                    await self._in_thread(_put_file, key, body.file)
        except (ObstoreError, BotoCoreError, ClientError, OSError) as error:
            raise StorageUnavailable(type(error).__name__) from error

    async def ping(self) -> None:
        """One cheap question, by the way that small bodies go. Raises StorageUnavailable when it is not answered."""
        try:
            await obstore.head_async(self._small, "ping")
        except FileNotFoundError:
            return
        except (ObstoreError, OSError) as error:
            raise StorageUnavailable(type(error).__name__) from error

    async def delete(self, key: str) -> None:
        """Delete what `key` holds, if anything. Raises StorageUnavailable."""
        await self._in_thread(delete, key)

    async def _in_thread(self, call: Any, *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    def close(self) -> None:
        """Wait for uploads under way and stop."""
        self._threads.shutdown(wait=True)


def _storage(alias: str) -> S3Storage:
    storage = storages[alias]
    assert isinstance(storage, S3Storage), alias  # noqa: S101  STORAGES says so
    return storage


@cache
def _client() -> Any:
    """One client for all upload threads: each one that a thread makes for itself costs megabytes."""
    return _storage("results").bucket.meta.client


def _put_file(key: str, file: IO[bytes]) -> None:
    _client().put_object(
        Bucket=settings.S3_BUCKET,
        Key=key,
        Body=file,
        ContentType=_ATTRIBUTES["Content-Type"],
        ContentDisposition=_ATTRIBUTES["Content-Disposition"],
    )


def _obstore_config() -> S3Config:
    config: S3Config = {"region": settings.S3_REGION}
    if settings.S3_ENDPOINT_URL:
        config["endpoint"] = settings.S3_ENDPOINT_URL
        config["virtual_hosted_style_request"] = False
    if settings.S3_ACCESS_KEY_ID:
        config["access_key_id"] = settings.S3_ACCESS_KEY_ID
        config["secret_access_key"] = settings.S3_SECRET_ACCESS_KEY
    return config

"""Objects over the real S3 protocol."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pytest

from core.ids import new_id
from results import storage


@dataclass
class StoredBody:
    size: int
    file: IO[bytes]


def _put(key: str, content: bytes) -> None:
    async def upload() -> None:
        store = storage.ResultStore()
        with tempfile.SpooledTemporaryFile(max_size=storage.IN_MEMORY_BYTES) as file:
            file.write(content)
            file.seek(0)
            await store.upload(key, StoredBody(len(content), file))
        store.close()

    asyncio.run(upload())


def _get(link: str) -> tuple[bytes, Any]:
    with urllib.request.urlopen(link, timeout=10) as answer:
        return answer.read(), answer.headers


def _status(link: str) -> int:
    try:
        with urllib.request.urlopen(link, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def key() -> Iterator[str]:
    key = storage.result_key(uuid.uuid4(), new_id(), 1)
    yield key
    storage.delete(key)


@pytest.mark.parametrize("size", [0, 1, 20_000, storage.IN_MEMORY_BYTES, storage.IN_MEMORY_BYTES + 1, 6_000_000])
def test_what_is_stored_is_what_comes_back_as_a_download(key: str, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    _put(key, content)
    body, headers = _get(storage.signed_link(key, filename="page"))
    assert body == content
    assert headers["Content-Disposition"] == 'attachment; filename="page"'
    assert headers["Content-Type"] == "application/octet-stream"


def test_a_link_stops_working(key: str, settings: Any) -> None:
    settings.RESULT_LINK_SECONDS = 1
    _put(key, b"hello")
    link = storage.signed_link(key, filename="page")
    assert _get(link)[0] == b"hello"
    deadline = time.monotonic() + 10
    while (status := _status(link)) == 200:
        assert time.monotonic() < deadline, "the link still works"
        time.sleep(0.2)
    assert status in (400, 403)


def test_an_altered_link_is_refused(key: str) -> None:
    _put(key, b"hello")
    link = storage.signed_link(key, filename="page")
    other = link.replace(key, key + "2")
    assert other != link
    assert _status(other) == 403


def test_deleting_what_is_not_there_is_no_error(key: str) -> None:
    storage.delete(key)
    storage.delete(key)
    assert _status(storage.signed_link(key, filename="page")) == 404


def test_keys_name_tenant_day_job_and_claim() -> None:
    tenant_id, job_id = uuid.uuid4(), uuid.UUID("018f0000-0000-7000-8000-000000000001")
    key = storage.result_key(tenant_id, job_id, 7)
    assert key == f"results/{tenant_id}/2024/04/21/{job_id}/7"
    assert re.fullmatch(r"results/[^/]+/\d{4}/\d\d/\d\d/[^/]+/\d+", storage.result_key(tenant_id, new_id(), 1))


def test_a_storage_that_is_not_there_is_unavailable(settings: Any) -> None:
    settings.S3_ENDPOINT_URL = "http://127.0.0.1:9"

    async def upload() -> None:
        store = storage.ResultStore()
        await store.upload("results/x", StoredBody(5, io.BytesIO(b"hello")))

    with pytest.raises(storage.StorageUnavailable):
        asyncio.run(upload())


def test_ping_raises_where_the_bucket_is_not(settings: Any) -> None:
    storage.ping()
    settings.S3_BUCKET = "no-such-bucket"
    with pytest.raises(storage.StorageUnavailable):
        storage.ping()

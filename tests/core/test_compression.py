"""Which answers are compressed, and for whom."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client

from core.compression import LEAST_BYTES, CompressionMiddleware, accepts_gzip
from tenants.models import Tenant
from tests.factories import client_of, make_job, member_client

LARGE = b'{"items":"' + b"a" * LEAST_BYTES + b'"}'


def answered(response: HttpResponseBase, accept_encoding: str = "gzip") -> Any:
    request = HttpRequest()
    request.META["HTTP_ACCEPT_ENCODING"] = accept_encoding
    return CompressionMiddleware(lambda _: response)(request)


def json(content: bytes = LARGE, **values: Any) -> HttpResponse:
    return HttpResponse(content, **({"content_type": "application/json"} | values))


@pytest.mark.parametrize(
    "header", ["gzip", "GZip", "deflate, gzip;q=1.0", "*", "x-gzip", "gzip;q=0.001", "br ; q=1, gzip ; q=0.5"]
)
def test_who_takes_gzip_is_understood(header: str) -> None:
    assert accepts_gzip(header)


@pytest.mark.parametrize(
    "header",
    ["", "identity", "br", "gzip;q=0", "*;q=0", "gzip;q=0, *", "gzip;q=nonsense", "gzipped", "a," * 1000 + "gzip"],
)
def test_who_does_not_gets_plain_bytes(header: str) -> None:
    assert not accepts_gzip(header)
    answer = answered(json(), header)
    assert answer.content == LARGE
    assert "Content-Encoding" not in answer
    assert answer["Vary"] == "Accept-Encoding", "others may get other bytes at this address"


def test_large_json_is_compressed_and_says_so() -> None:
    response = json(headers={"Content-Length": str(len(LARGE)), "Vary": "Accept"})
    answer = answered(response)
    assert gzip.decompress(answer.content) == LARGE
    assert (answer["Content-Encoding"], answer["Content-Length"]) == ("gzip", str(len(answer.content)))
    assert answer["Vary"] == "Accept, Accept-Encoding"
    assert len(answer.content) < len(LARGE)


@pytest.mark.parametrize("kind", ["application/vnd.oai.openapi+json", "application/json; charset=utf-8"])
def test_all_kinds_of_json_are(kind: str) -> None:
    assert answered(json(content_type=kind))["Content-Encoding"] == "gzip"


@pytest.mark.parametrize(
    "response",
    [
        json(b"a" * (LEAST_BYTES - 1)),
        json(status=404, content_type="application/problem+json"),
        json(content_type="text/html"),
        json(headers={"ETag": 'W/"a"'}),
        json(headers={"Content-Encoding": "br"}),
        StreamingHttpResponse([LARGE], content_type="application/json"),
    ],
)
def test_nothing_else_is(response: HttpResponseBase) -> None:
    assert answered(response).get("Content-Encoding") != "gzip"


@pytest.mark.django_db
def test_a_large_list_is_compressed_and_one_job_and_a_page_are_not(tenant: Tenant) -> None:
    jobs = [make_job(tenant) for _ in range(10)]
    headers = {"Accept-Encoding": "gzip"}
    client = client_of(tenant)
    plain = client.get("/api/v1/jobs")
    packed = client.get("/api/v1/jobs", headers=headers)
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) * 4 < len(plain.content)
    assert {"Accept", "Accept-Encoding"} <= {name.strip() for name in packed["Vary"].split(",")}
    assert "Content-Encoding" not in client.get(f"/api/v1/jobs/{jobs[0].id}", headers=headers)
    page = member_client(tenant).get("/api/v1/jobs", headers=headers)
    assert (page.status_code, "Content-Encoding" in page) == (200, False)


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/schema", "/static/query/browse.js", "/nowhere"])
def test_what_anybody_may_ask_for_is_readable_when_compressed(path: str, db: None) -> None:
    answer: Any = Client().get(path, headers={"Accept-Encoding": "gzip"})
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    assert gzip.decompress(content) if answer.get("Content-Encoding") == "gzip" else content

"""What no client should send, on every address that takes a body, over the wire: bounded, and told by the contract."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import psutil
import pytest

from jobs.models import Job
from tests.core.web_role import Reply, WebRole
from webhooks.models import CallbackSecret, Endpoint

MIB: Final = 1024 * 1024
UNKNOWN: Final = b"0198c6a2-b3c4-7d1e-9f00-112233445566"
SMALL: Final = (
    b"/jobs",
    b"/jobs/plan",
    b"/webhook-endpoints",
    b"/callback-secret/rotate",
)
"""Addresses of bodies up to 1 MiB; those below an id are found missing before or after the body is read."""
BELOW_AN_ID: Final = (
    b"/webhook-endpoints/" + UNKNOWN + b"/rotate-secret",
    b"/webhook-endpoints/" + UNKNOWN + b"/replay",
)
UNREADABLE: Final[dict[str, bytes]] = {
    "100,000 deep arrays": b'{"url": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep and never closed": b"[" * 100_000,
    "a name twice": b'{"url": "http://a.example/", "url": "http://b.example/"}',
    "NaN": b'{"url": NaN}',
    "-Infinity": b'{"url": -Infinity}',
    "1e999": b'{"url": 1e999}',
    "100,000 digits": b'{"url": ' + b"9" * 100_000 + b"}",
    "half a surrogate pair": b'{"url": "\\ud800"}',
    "an escaped NUL": b'{"url": "a\\u0000b"}',
    "a raw NUL": b'{"url": "a\x00b"}',
    "no UTF-8": b'{"url": "\xff"}',
    "a byte order mark": b'\xef\xbb\xbf{"url": "http://a.example/"}',
    "single quotes": b"{'url': 1}",
}
LINES: Final = b"application/x-ndjson"
JSON: Final = b"application/json"


def post(web: WebRole, head: bytes, path: bytes, body: bytes, kind: bytes = JSON) -> Reply:
    more = b"Content-Type: %s\r\nContent-Length: %d\r\n" % (kind, len(body))
    return web.send(b"POST /api/v1" + path + b" HTTP/1.1\r\n" + head + more + b"\r\n" + body)


def problem(reply: Reply) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(reply.body)
    assert reply.headers["content-type"] == "application/problem+json"
    assert document["status"] == reply.status
    assert reply.headers["x-request-id"]
    return document


@pytest.mark.parametrize("path", SMALL, ids=bytes.decode)
def test_a_body_that_cannot_be_read_is_refused_everywhere(web: WebRole, head: bytes, path: bytes) -> None:
    started = time.monotonic()
    for name, body in UNREADABLE.items():
        reply = post(web, head, path, body)
        assert (reply.status, problem(reply)["code"]) == (400, "malformed_request"), name
    assert time.monotonic() - started < 20
    assert not any(model.objects.exists() for model in (Job, Endpoint, CallbackSecret))


@pytest.mark.parametrize("path", [*SMALL, *BELOW_AN_ID], ids=bytes.decode)
def test_a_mebibyte_is_read_and_a_byte_more_is_not(web: WebRole, head: bytes, path: bytes) -> None:
    frame = b'{"no such field": ""}'
    full = frame[:-2] + b"x" * (MIB - len(frame)) + frame[-2:]
    assert post(web, head, path, full).status == (404 if path in BELOW_AN_ID else 422)
    reply = post(web, head, path, full + b" ")
    assert reply.status == 413 or (reply.status == 404 and path in BELOW_AN_ID)
    assert problem(reply)["code"] in ("payload_too_large", "not_found")


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_line_of_a_batch_that_cannot_be_read_is_refused_alone(web: WebRole, head: bytes, name: str) -> None:
    good = b'{"url": "http://a.example/"}'
    reply = post(web, head, b"/jobs/batch", good + b"\n" + UNREADABLE[name] + b"\n" + good + b"\n", LINES)
    assert reply.status == 202, reply.body
    receipt = json.loads(reply.body)
    assert (receipt["accepted"], receipt["rejected"]) == (2, 1)
    assert receipt["items"][1]["error"]["code"] == "malformed_request"


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_row_of_an_array_that_cannot_be_read_never_makes_a_job(web: WebRole, head: bytes, name: str) -> None:
    """Where its end can be found it is refused alone, else the array is 400 as a whole."""
    reply = post(web, head, b"/jobs/batch", b"[" + UNREADABLE[name] + b"]")
    assert reply.status in (202, 400)
    if reply.status == 202:
        assert json.loads(reply.body)["accepted"] == 0
    else:
        assert problem(reply)["code"] == "malformed_request"
    assert not Job.objects.exists()


@pytest.mark.parametrize("path", [b"/jobs/batch", b"/webhook-endpoints"], ids=bytes.decode)
def test_slow_senders_hold_nobody_up(web: WebRole, head: bytes, path: bytes) -> None:
    opened = (
        b"POST /api/v1"
        + path
        + b" HTTP/1.1\r\n"
        + head
        + b"Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n["
    )
    senders = [web.connect() for _ in range(48)]
    try:
        for sender in senders:
            sender.sendall(opened)
        time.sleep(0.3)
        for _ in range(3):
            started = time.monotonic()
            assert post(web, head, path, b'[{"url": "http://a.example/"}]').status in (202, 422)
            assert time.monotonic() - started < 5.0
    finally:
        for sender in senders:
            sender.close()


def test_memory_stays_flat_under_batches_of_32_mebibytes(web: WebRole, head: bytes) -> None:
    row = b'{"x": "' + b"y" * 1000 + b'"}'
    many = b"\n".join([row] * (32 * MIB // (len(row) + 1)))
    deep = b"\n".join([b"[" * 500_000] * 60)
    wide = b"[" + b",".join([b"[]"] * 9_000) + b"]"
    too_many = b"[" + b",".join([b"[]"] * 5_000_000) + b"]"
    too_large = b"\n" * (32 * MIB + 1)

    def storm() -> int:
        for body, kind, status in (
            (many, LINES, 422),
            (deep, LINES, 202),
            (wide, JSON, 202),
            (too_many, JSON, 422),
            (too_large, LINES, 413),
        ):
            reply = post(web, head, b"/jobs/batch", body, kind)
            assert reply.status == status, reply.body[:300]
        return sum(child.memory_info().rss for child in psutil.Process(web.pid).children(recursive=True))

    storm(), storm()  # each worker meets the largest once
    warm = storm()
    after = storm()
    print(f"RSS of the web processes: {warm >> 20} MiB, then {after >> 20} MiB")
    assert after - warm < 48 * MIB
    assert after < 1024 * MIB
    assert not Job.objects.exists()

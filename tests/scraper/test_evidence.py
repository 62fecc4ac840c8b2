"""What an attempt records of its connection and of the body's character set."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scraper.egress import EgressGuard
from scraper.evidence import DOCUMENT_HEAD_BYTES, MAX_LABEL, charset_evidence, told_address
from scraper.outcomes import FetchOutcome
from tests.scraper.fetch_kin import HELLO, redirect
from tests.scraper.raw_server import RawServer
from tests.scraper.test_egress import answering
from tests.scraper.test_fetcher import fetch, order, stored


def seen(content_type: str, head: bytes) -> tuple[str | None, str | None, str | None]:
    found = charset_evidence(content_type, head)
    return found["bom"], found["header"], found["meta"]


@pytest.mark.parametrize(
    ("content_type", "header"),
    [
        ("text/html", None),
        ("text/html; charset=UTF-8", "utf-8"),
        ('text/html;charset="windows-1252"', "windows-1252"),
        ("text/html; boundary=x; Charset = koi8-r ; x=y", "koi8-r"),
        ("text/html; charset=rot13", "rot13"),
        ("text/html; charset=", None),
        ('text/html; charset=""', None),
        ("text/html; charset=utf-8, text/plain", "utf-8"),
        ("text/html; charset=caf\xe9", None),
        ("text/html; charset=" + "x" * 200, "x" * MAX_LABEL),
        ("text/html; xcharset=utf-8", None),
        ("", None),
    ],
)
def test_the_headers_label_is_told_as_it_is(content_type: str, header: str | None) -> None:
    assert seen(content_type, b"")[1] == header


@pytest.mark.parametrize(
    ("head", "bom"),
    [
        (b"\xef\xbb\xbfhello", "utf-8"),
        (b"\xff\xfeh\0", "utf-16le"),
        (b"\xfe\xff\0h", "utf-16be"),
        (b"\xef\xbb", None),
        (b"hello\xef\xbb\xbf", None),
        (b"", None),
    ],
)
def test_a_byte_order_mark_is_told_whatever_the_type(head: bytes, bom: str | None) -> None:
    assert seen("text/plain", head)[0] == bom
    assert seen("application/json", head)[0] == bom


@pytest.mark.parametrize(
    ("head", "meta"),
    [
        (b"<meta charset=utf-8>", "utf-8"),
        (b"<!doctype html><html><head><META CharSet='Shift_JIS' />", "shift_jis"),
        (b'<meta name="x" content="charset=koi8-r"><meta charset="utf-8">', "utf-8"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=ISO-8859-1">', "iso-8859-1"),
        (b"<meta content='text/html;charset=gbk' http-equiv=content-type>", "gbk"),
        (b'<meta http-equiv="refresh" content="0; charset=gbk">', None),
        (b"<!-- <meta charset=gbk> --><meta charset=utf-8>", "utf-8"),
        (b"<!-- <meta charset=gbk>", None),
        (b'<?xml version="1.0" encoding="ISO-8859-15"?><a/>', "iso-8859-15"),
        (b'\xef\xbb\xbf<?xml version="1.0" encoding="UTF-8"?><a/>', "utf-8"),
        (b'<p>charset=utf-8 <?xml encoding="x"?>', None),
        (b"<meta charset=>", None),
        (b"<meta charset=\xe9>", None),
        (b"<metacharset=utf-8>", None),
        (b" " * DOCUMENT_HEAD_BYTES + b"<meta charset=utf-8>", None),
        (b"", None),
    ],
)
def test_the_documents_own_word_is_told(head: bytes, meta: str | None) -> None:
    assert seen("text/html", head)[2] == meta
    assert seen("", head)[2] == meta
    assert seen("application/json", head)[2] is None


@given(st.text(max_size=60), st.binary(max_size=DOCUMENT_HEAD_BYTES))
def test_any_bytes_are_labels_or_nothing(content_type: str, head: bytes) -> None:
    for label in charset_evidence(content_type, head).values():
        assert label is None or (label.isascii() and label.isprintable() and 0 < len(label) <= MAX_LABEL)


@pytest.mark.parametrize(
    "piece", [b"<meta ", b"<!--", b"<meta a=", b"<?xml ", b'<meta "', b"charset=", b"<meta charset "]
)
def test_no_document_costs_much_time(piece: bytes) -> None:
    started = time.perf_counter()
    for _ in range(20):
        charset_evidence("text/html", (piece * DOCUMENT_HEAD_BYTES)[:DOCUMENT_HEAD_BYTES])
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    ("peer", "host", "told"),
    [
        ("1.1.1.1", "name.example", "1.1.1.1"),
        ("2606:4700::1", "name.example", "2606:4700::1"),
        ("10.1.2.3", "intranet.example", None),
        ("127.0.0.1", "localhost", None),
        ("fd12::1", "name.example", None),
        ("10.1.2.3", "10.1.2.3", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.4", None),
        ("fd12::1", "fd12:0::1", "fd12::1"),
        (None, "name.example", None),
    ],
)
def test_only_a_public_address_or_one_that_the_caller_wrote_is_told(
    peer: str | None, host: str, told: str | None
) -> None:
    assert told_address(peer, host) == told


def answered(url: str, *allow: str) -> FetchOutcome:
    return fetch(order(url), egress=EgressGuard(allow, answering("127.0.0.1")))


def test_connection_and_charset_are_of_the_last_hop() -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=latin1\r\nContent-Encoding: gzip\r\n"
    document = "\xef\xbb\xbf<meta charset=gbk>"
    answer = f"{head}Content-Length: {len(document)}\r\n\r\n{document}"
    with RawServer([{"send": answer}]) as last, RawServer([]) as first:
        first.steps = [{"send": redirect(f"http://name.example:{last.port}/case")}]
        outcome = answered(first.url, first.allowed, last.allowed)
    assert stored(outcome) == document.encode("latin-1")
    assert outcome.evidence == {
        "connection": {"remote_address": None, "http_version": "HTTP/1.1"},
        "charset": {"bom": "utf-8", "header": "latin1", "meta": "gbk"},
    }


def test_a_failed_attempt_keeps_what_it_saw() -> None:
    with RawServer([{"send": "HTTP/1.0 404 X\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"}]) as server:
        outcome = answered(server.url, server.allowed)
    assert outcome.evidence["connection"] == {"remote_address": "127.0.0.1", "http_version": "HTTP/1.0"}
    assert outcome.evidence["charset"] == {"bom": None, "header": "utf-8", "meta": None}


def test_an_attempt_without_a_connection_has_no_evidence_of_one() -> None:
    with RawServer([{"send": HELLO}]) as server:
        assert answered(server.url).evidence == {}
        with RawServer([{"send": redirect("http://name.example/")}]) as hop:
            outcome = fetch(order(hop.url), egress=EgressGuard([hop.allowed], answering("10.1.2.3")))
    assert outcome.error_code == "blocked_target"
    assert "connection" not in outcome.evidence
    assert "10.1.2.3" not in repr(outcome)

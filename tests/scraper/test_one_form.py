"""A URL has one form: what intake stores is what goes over the wire, byte by byte, and what the attempt names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.targets import InvalidTarget, parse_target
from scraper.egress import EgressGuard
from tests.scraper.raw_server import RawServer
from tests.scraper.test_egress import answering
from tests.scraper.test_fetcher import fetch, order

URLS = """http://127.0.0.1:{port} http://127.0.0.1:{port}? http://127.0.0.1:{port}/?a=b&c HTTP://0x7f.1:{port}/x#part
http://127.0.0.1:{port}/a/../b/./c http://127.0.0.1:{port}/%2e%2e/%2E/x http://127.0.0.1:{port}/a//b///c
http://127.0.0.1:{port}/%7Eme/%7e/~ http://127.0.0.1:{port}/caf\u00e9?q=\u00e9 http://127.0.0.1:{port}/%zz%
http://127.0.0.1:{port}/a\\b?c\\d http://127.0.0.1:{port}/;p=1,2;q http://127.0.0.1:{port}/|{{}}^`<>"
http://127.0.0.1:{port}/?q='a'"b"<c> http://127.0.0.1:{port}/@:+$!*() http://127.0.0.1:{port}/?#
http://127.0.0.1:{port}/?a=%20+&b=%00 http://127.0.0.1:{port}/\U0001f600?\U0001f600 http://127.0.0.1:{port}/case/%2F
http://NAME.Example:{port}/ http://name.example.:{port}/ http://b\u00fccher.example:{port}/ http://fa\u00df.example:{port}/
http://a_b.example:{port}/ http://xn--bcher-kva.example:{port}/ http://\u4f8b\u3048.example:{port}/\u4f8b""".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def server() -> Iterator[RawServer]:
    with RawServer([]) as server:
        yield server


def check(url: str, server: RawServer, params: dict[str, object] | None = None) -> None:
    stored = parse_target(url, params)
    outcome = fetch(order(stored.url), egress=EgressGuard([server.allowed], answering("127.0.0.1")))
    assert (outcome.error_code, outcome.final_url) == (None, stored.url)
    line, host, _ = server.requests[-1].split(b"\r\n", 2)
    assert line == f"GET {stored.request_target} HTTP/1.1".encode()
    assert host == f"Host: {stored.authority}".encode()
    assert f"http://{host.decode().removeprefix('Host: ')}{line.decode().split(' ')[1]}" == stored.url


@pytest.mark.parametrize("url", URLS, ids=ascii)
def test_the_stored_form_is_the_one_that_is_sent(url: str, server: RawServer) -> None:
    check(url.format(port=server.port), server)


def test_params_are_sent_as_they_were_stored(server: RawServer) -> None:
    check(f"http://127.0.0.1:{server.port}/?a=1", server, {"b c": "\u00e9&=", "l": [1, True, None]})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(rest=st.text(max_size=40))
def test_whatever_is_accepted_is_sent_as_it_is_stored(rest: str, server: RawServer) -> None:
    url = f"http://127.0.0.1:{server.port}/{rest}"
    try:
        parse_target(url)
    except InvalidTarget:
        return
    check(url, server)

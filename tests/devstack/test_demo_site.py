"""The demo site answers as the demo and the tests expect of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2
import pytest

from devstack.demo_site import BIG_BYTES, PAGE, DemoSite, pattern


@pytest.fixture(scope="module")
def site() -> Iterator[DemoSite]:
    with DemoSite() as running:
        yield running


@pytest.fixture
def client(site: DemoSite) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=site.url, trust_env=False) as ready:
        yield ready


def test_a_flaky_page_fails_twice_for_each_nonce(client: httpx2.Client) -> None:
    assert [client.get("/flaky/a").status_code for _ in range(4)] == [503, 503, 200, 200]
    assert client.get("/flaky/b").status_code == 503


def test_a_limited_page_says_when_to_come_back(client: httpx2.Client) -> None:
    refused, served = client.get("/limited/a"), client.get("/limited/a")
    assert (refused.status_code, refused.headers["Retry-After"], served.content) == (429, "1", PAGE)


def test_a_slow_page_takes_its_time(client: httpx2.Client) -> None:
    began = time.monotonic()
    assert client.get("/slow?seconds=0.3").content == PAGE
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize(("path", "size"), [("/big", BIG_BYTES), ("/bytes/70000", 70_000), ("/bytes/0", 0)])
def test_bodies_have_the_promised_bytes(client: httpx2.Client, path: str, size: int) -> None:
    assert client.get(path).content == pattern(size)


@pytest.mark.parametrize("path", ["/missing", "/bytes/x", "/bytes/99999999999", "/"])
def test_other_paths_are_missing(client: httpx2.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_a_redirect_leads_to_the_fast_page(client: httpx2.Client) -> None:
    assert client.get("/redirect").headers["Location"] == "/fast"
    assert client.get("/redirect", follow_redirects=True).content == PAGE


def test_echo_shows_the_request(client: httpx2.Client) -> None:
    seen = client.put("/echo?a=1", content=b"hello", headers={"X-Test": "yes"}).json()
    assert (seen["method"], seen["path"], seen["body"], seen["headers"]["X-Test"]) == (
        "PUT",
        "/echo?a=1",
        "hello",
        "yes",
    )


def test_head_sends_no_body(client: httpx2.Client) -> None:
    answer = client.head("/fast")
    assert (answer.headers["Content-Length"], answer.content) == (str(len(PAGE)), b"")


def test_the_log_keeps_when_each_request_began_and_ended(client: httpx2.Client) -> None:
    client.get("/slow?seconds=0.2&mark=log")
    entry = next(entry for entry in client.get("/_log").json() if "mark=log" in entry["path"])
    assert (entry["method"], entry["status"]) == ("GET", 200)
    assert 0.2 <= entry["end"] - entry["start"] < 5


def test_the_site_listens_on_loopback_only(site: DemoSite) -> None:
    assert site.url.startswith("http://127.0.0.1:")

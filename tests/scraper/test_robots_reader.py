"""robots.txt on an attempt's way: read once, by the same way as the page, and obeyed at every hop."""

import asyncio
import gzip
from collections.abc import Sequence
from typing import Any

import pytest

from core.proxies import parse_proxy
from jobs.error_codes import is_known, is_temporary
from scraper.egress import EgressGuard
from scraper.fetcher import Fetcher
from scraper.outcomes import FetchOutcome, FetchRequest
from scraper.robots import MAX_BYTES
from tests.scraper.fetch_kin import encoded, redirect
from tests.scraper.proxy_server import ProxyServer
from tests.scraper.raw_server import RawServer
from tests.scraper.test_egress import answering
from tests.scraper.test_fetcher import free_port, order, sent_headers, stored
from tests.scraper.test_gate import Notebook


class Site(RawServer):
    """Plays `steps` for robots.txt; any other page is a 200."""

    path = "/robots.txt"

    @property
    def page(self) -> str:
        return f"http://{self.allowed}/page"

    @property
    def asked(self) -> list[str]:
        """The request lines, without the version."""
        return [request.split(b" HTTP/")[0].decode() for request in self.requests]


def says(text: str, status: str = "200 OK", extra: str = "") -> list[dict[str, Any]]:
    return [{"send": f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n{extra}\r\n{text}"}]


FORBIDDEN = says("User-agent: *\nDisallow: /page\n")
ALLOWED = says("User-agent: *\nDisallow: /other\n")


def polite(url: str, **more: Any) -> FetchRequest:
    return order(url, respect_robots=True, **more)


def fetch_all(requests: Sequence[FetchRequest], allow: Sequence[str], **more: Any) -> list[FetchOutcome]:
    """One after the other, by one fetcher."""

    async def run() -> list[FetchOutcome]:
        gate = more.pop("gate", None)
        guard = EgressGuard(allow, more.pop("resolver", None))
        fetcher = Fetcher(egress=guard, user_agent="agent/1", max_connections=4, **more)
        return [await fetcher.fetch(request, gate) for request in requests]

    return asyncio.run(run())


def fetch(url: str, *allow: str, **more: Any) -> FetchOutcome:
    of_request = {
        name: more.pop(name) for name in ("deadline_seconds", "proxy", "method", "headers", "body") if name in more
    }
    return fetch_all([polite(url, **of_request)], allow, **more)[0]


def test_what_is_forbidden_is_not_asked_for() -> None:
    with Site(FORBIDDEN) as site:
        outcome = fetch(site.page, site.allowed)
    assert (outcome.error_code, outcome.request_sent, outcome.http_status) == ("blocked_by_robots", False, None)
    assert outcome.error_detail == (f"The robots.txt of {site.allowed} disallows it in line 2: Disallow: /page")
    assert not is_temporary("blocked_by_robots")
    assert site.asked == ["GET /robots.txt"]


def test_without_being_told_to_nobody_reads_it() -> None:
    with Site(FORBIDDEN) as site:
        stored(fetch_all([order(site.page)], [site.allowed])[0])
    assert site.asked == ["GET /page"]


def test_it_is_read_once_for_many_jobs() -> None:
    with Site(ALLOWED) as site:
        for outcome in fetch_all([polite(f"http://{site.allowed}/{n}") for n in range(5)], [site.allowed]):
            stored(outcome)
    assert site.asked == ["GET /robots.txt", *(f"GET /{n}" for n in range(5))]


def test_it_is_read_once_for_many_jobs_at_once() -> None:
    async def run(site: Site) -> None:
        fetcher = Fetcher(egress=EgressGuard([site.allowed]), user_agent="a", max_connections=10)
        for outcome in await asyncio.gather(*(fetcher.fetch(polite(site.page)) for _ in range(10))):
            stored(outcome)

    with Site([{"sleep": 0.2}, *ALLOWED]) as site:
        asyncio.run(run(site))
    assert site.asked.count("GET /robots.txt") == 1
    assert site.connections == 11


def test_each_scheme_host_and_port_has_its_own() -> None:
    with Site(FORBIDDEN) as one, Site(ALLOWED) as other:
        codes = [o.error_code for o in fetch_all([polite(one.page), polite(other.page)], [one.allowed, other.allowed])]
    assert codes == ["blocked_by_robots", None]


def test_it_is_asked_for_in_our_own_name_and_with_nothing_of_the_job() -> None:
    headers = (("Authorization", "secret"), ("User-Agent", "mybot"), ("Range", "bytes=0-1"))
    with Site(ALLOWED) as site:
        fetch(site.page, site.allowed, method="POST", headers=headers, body=b"secret")
    assert site.requests[0].startswith(b"GET /robots.txt HTTP/1.1\r\n")
    assert b"secret" not in site.requests[0]
    assert sent_headers(site.requests[0])["user-agent"] == "agent/1"
    assert "range" not in sent_headers(site.requests[0])
    assert site.asked[1] == "POST /page"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 451, 499, 300, 304])
def test_where_there_are_none_everything_is_allowed(status: int) -> None:
    with Site(says("User-agent: *\nDisallow: /", f"{status} X")) as site:
        stored(fetch(site.page, site.allowed))


UNREAD = [
    (says("", "500 X"), "http_500"),
    (says("", "503 X", "Retry-After: 7\r\n"), "http_503"),
    (says("", "599 X"), "blocked_by_robots"),
    ([{"reset": True}], "connection_reset"),
    ([], "server_disconnected"),
    ([{"send": "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nUser-agent: *"}], "incomplete_body"),
    ([{"send": "garbage\r\n\r\n"}], "invalid_response"),
    ([{"send": encoded("gzip", gzip.compress(b"User-agent: *")[:10] + b"\x07" * 30)}], "invalid_response"),
    ([{"sleep": 3}], "read_timeout"),
]


@pytest.mark.parametrize(("steps", "cause"), UNREAD)
def test_what_cannot_be_read_forbids_for_now(steps: list[dict[str, Any]], cause: str) -> None:
    with Site(steps) as site:
        outcome = fetch(site.page, site.allowed, method="POST", silence_seconds=1)
    code = cause if is_temporary(cause) else "blocked_by_robots"
    assert (outcome.error_code, outcome.robots_unread, outcome.request_sent) == (code, True, False)
    assert is_known(code)
    assert outcome.error_detail.startswith(f"The robots.txt of {site.allowed} cannot be read: ")
    assert outcome.retry_after == ("7" if cause == "http_503" else None)
    assert set(site.asked) <= {"GET /robots.txt"}


def test_a_host_that_cannot_be_reached_at_all_keeps_its_own_error() -> None:
    port = free_port()
    outcome = fetch(f"http://127.0.0.1:{port}/", f"127.0.0.1:{port}")
    assert (outcome.error_code, outcome.robots_unread) == ("connection_refused", False)
    assert fetch("http://inside.example/", resolver=answering("10.0.0.1")).error_code == "blocked_target"


def chain(length: int, last: list[dict[str, Any]]) -> Sequence[Site]:
    """Each one's robots.txt redirects to the next one's."""
    sites = [Site(last)]
    for _ in range(length):
        sites.insert(0, Site([{"send": redirect(sites[0].url)}]))
    return sites


@pytest.mark.parametrize(("length", "allowed"), [(1, False), (5, False), (6, True)])
def test_five_redirects_are_followed_to_other_hosts_and_after_more_there_are_no_rules(
    length: int, allowed: bool
) -> None:
    sites = chain(length, FORBIDDEN)
    for site in sites:
        site.__enter__()
    try:
        outcome = fetch(sites[0].page, *(site.allowed for site in sites))
    finally:
        for site in sites:
            site.__exit__(None, None, None)
    assert (outcome.error_code is None) is allowed
    if not allowed:
        assert f"robots.txt of {sites[0].allowed} disallows it in line 2" in outcome.error_detail


@pytest.mark.parametrize("location", ["", "ftp://a.example/robots.txt", "http://"])
def test_a_redirect_that_leads_nowhere_means_no_rules(location: str) -> None:
    with Site([{"send": redirect(location)}]) as site:
        stored(fetch(site.page, site.allowed))


def test_a_redirect_inside_is_not_followed_and_forbids() -> None:
    with Site(ALLOWED) as inside, Site([{"send": redirect(inside.url)}]) as site:
        outcome = fetch(site.page, site.allowed)
        assert outcome.error_code == "blocked_by_robots"
        assert "127.0.0.1:" + str(inside.port) not in outcome.error_detail
        assert inside.connections == 0


def test_each_hop_is_judged_by_its_own_hosts_rules() -> None:
    with Site(FORBIDDEN) as last, Site(ALLOWED) as first:
        first.pages = {"/page": redirect(last.page)}
        outcome = fetch(first.page, first.allowed, last.allowed)
        assert outcome.error_code == "blocked_by_robots"
        assert last.allowed in outcome.error_detail
        assert outcome.redirects == [{"url": first.page, "status": 302}]
        assert outcome.request_sent
        assert last.asked == ["GET /robots.txt"]


def test_what_comes_after_500_kib_is_not_read() -> None:
    padding = "#" * 99 + "\n"
    early = padding * 10 + "User-agent: *\nDisallow: /page\n" + padding * (2 * MAX_BYTES // 100)
    late = "User-agent: *\n" + padding * (MAX_BYTES // 100) + "Disallow: /page\n" + padding * 10_000
    for text, code in ((early, "blocked_by_robots"), (late, None)):
        with Site(says(text)) as site:
            outcome = fetch(site.page, site.allowed)
        assert outcome.error_code == code


def test_an_endless_or_exploding_file_is_cut_off() -> None:
    bomb = gzip.compress(b"User-agent: *\nDisallow: /page\n" + bytes(50_000_000)).decode("latin-1")
    exploding: list[dict[str, Any]] = [{"send": f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n{bomb}"}]
    endless: list[dict[str, Any]] = [
        {"send": "HTTP/1.1 200 OK\r\n\r\nUser-agent: *\nDisallow: /page\n"},
        {"send": "#" * 1_000_000, "times": 20},
    ]
    for steps in (exploding, endless):
        with Site(steps) as site:
            assert fetch(site.page, site.allowed).error_code == "blocked_by_robots"


def test_a_coded_file_with_a_byte_order_mark_is_understood() -> None:
    body = gzip.compress("\ufeffUser-agent: *\nDisallow: /page\n".encode()).decode("latin-1")
    with Site([{"send": f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n{body}"}]) as site:
        assert fetch(site.page, site.allowed).error_code == "blocked_by_robots"


def test_the_gate_is_asked_for_it_too_and_hears_what_it_says() -> None:
    gate = Notebook()
    with Site(says("User-agent: *\nCrawl-delay: 3\n")) as site:
        fetch_all([polite(site.page), polite(site.page)], [site.allowed], gate=gate)
    assert gate.heard == [
        ("enter", site.allowed),
        ("answered", 200, None),
        ("slow_down", site.allowed, 3.0),
        *[("enter", site.allowed), ("answered", 200, None)] * 2,
    ]


def test_a_host_that_asks_for_no_delay_any_more_is_told_as_well() -> None:
    for steps in (ALLOWED, says("", "404 X")):
        gate = Notebook()
        with Site(steps) as site:
            fetch(site.page, site.allowed, gate=gate)
        assert ("slow_down", site.allowed, 0.0) in gate.heard


def test_a_host_that_may_not_be_called_now_is_not_asked_for_its_rules() -> None:
    with Site(ALLOWED) as site:
        outcome = fetch(site.page, site.allowed, gate=Notebook(refused=site.allowed))
    assert outcome.not_now is not None
    assert (outcome.error_code, site.connections) == (None, 0)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_through_a_proxy_it_comes_by_the_proxy_and_counts_for_who_uses_it(scheme: str) -> None:
    gate = Notebook()
    with Site(says("User-agent: *\nCrawl-delay: 3\nDisallow: /page")) as site, ProxyServer(scheme) as proxy:
        through = polite(site.page, proxy=parse_proxy(proxy.url()))
        outcomes = fetch_all([through, through, polite(site.page)], [site.allowed, proxy.allowed], gate=gate)
        assert [outcome.error_code for outcome in outcomes] == ["blocked_by_robots"] * 3
        assert proxy.asked == [site.allowed]
        assert site.asked == ["GET /robots.txt"] * 2
    # What a proxy says must not slow others down.
    assert [word for word, *_ in gate.heard] == ["enter", "answered", "enter", "answered", "slow_down"]


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_proxy_that_refuses_has_told_no_rules(scheme: str) -> None:
    with Site(ALLOWED) as site, ProxyServer(scheme, credentials=("user", "pass")) as proxy:
        outcome = fetch(site.page, site.allowed, proxy.allowed, proxy=parse_proxy(proxy.url("user:wrong@")))
        assert (outcome.error_code, outcome.robots_unread, site.connections) == ("http_407", False, 0)


def test_an_attempt_whose_deadline_ends_here_leaves_the_reading_to_the_next() -> None:
    with Site([{"sleep": 1}, *ALLOWED]) as site:
        short, long = polite(site.page, deadline_seconds=0.3), polite(site.page, deadline_seconds=5)

        async def run() -> list[FetchOutcome]:
            fetcher = Fetcher(egress=EgressGuard([site.allowed]), user_agent="a", max_connections=2)
            return list(await asyncio.gather(fetcher.fetch(short), fetcher.fetch(long)))

        first, second = asyncio.run(run())
    assert first.error_code == "deadline_exceeded"
    assert stored(second).startswith(b"GET /page")

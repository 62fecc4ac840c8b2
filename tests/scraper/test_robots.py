"""What a robots.txt says: which rule counts, for whom, how it is named, and that no file is dear to read."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.targets import parse_target
from scraper.robots import MAX_BYTES, MAX_CRAWL_DELAY, RobotsFile


def refusal(text: str | bytes, path: str = "/private/x") -> str | None:
    body = text.encode() if isinstance(text, str) else text
    return RobotsFile(body).refusal(parse_target(f"http://a.example{path}"))


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("", "/", True),
        ("User-agent: *\nDisallow:", "/", True),
        ("User-agent: *\nDisallow: /", "/", False),
        ("User-agent: *\nDisallow: /", "/robots.txt", True),
        ("User-agent: *\nDisallow: /private", "/private/x", False),
        ("User-agent: *\nDisallow: /private", "/Private/x", True),
        ("User-agent: *\nDisallow: /private\nAllow: /private/x", "/private/x", True),
        ("User-agent: *\nAllow: /private\nDisallow: /private/x", "/private/x", False),
        ("User-agent: *\nDisallow: /x\nAllow: /x", "/x", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdf?x", True),
        ("User-agent: *\nDisallow: /*?q=", "/search?q=1", False),
        ("User-agent: *\nDisallow: /search?q=", "/search?q=1", False),
        ("User-agent: *\nDisallow: /b\u00fccher", "/b\u00fccher/1", False),
        ("User-agent: *\nDisallow: /b%C3%BCcher", "/b\u00fccher/1", False),
        ("User-agent: *\nDisallow: /~joe", "/%7Ejoe/", False),
        ("\ufeffUser-agent: *\nDisallow: /", "/", False),
        ("user-AGENT:*\r\nDISALLOW:/x # why\r\n", "/x", False),
        ("User-agent: *\rDisallow: /x", "/x", False),
        ("Disallow: /x", "/x", True),
        ("<html><body>Not found</body></html>", "/x", True),
        ("User-agent: *\nSitemap: http://a.example/s.xml\nDisallow: /x", "/x", False),
    ],
)
def test_a_path_is_allowed_or_not(text: str, path: str, allowed: bool) -> None:
    assert (refusal(text, path) is None) is allowed


@pytest.mark.parametrize(
    ("agent", "means_us"),
    [
        ("*", True),
        ("scraping-jobs", True),
        ("Scraping-Jobs/1.0", True),
        ("SCRAPING-JOBS (all of it)", True),
        ("scraping", False),
        ("s", False),
        ("jobs", False),
        ("scraping-jobs-news", False),
        ("Googlebot", False),
        ("scraping*", False),
        ("", False),
    ],
)
def test_a_group_means_us_by_the_whole_product_token_alone(agent: str, means_us: bool) -> None:
    """RFC 9309 2.2.1."""
    assert (refusal(f"User-agent: {agent}\nDisallow: /") is not None) is means_us


def test_our_own_group_counts_instead_of_everybodys() -> None:
    text = "User-agent: *\nDisallow: /\n\nUser-agent: scraping-jobs\nDisallow: /other\n"
    assert refusal(text) is None
    assert refusal(text, "/other") is not None


def test_groups_of_one_name_are_one() -> None:
    text = "User-agent: scraping-jobs\nDisallow: /a\n\nUser-agent: b\nUser-agent: scraping-jobs\nDisallow: /b\n"
    assert refusal(text, "/a") is not None
    assert refusal(text, "/b") is not None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("User-agent: *\nDisallow: /private", "2: Disallow: /private"),
        ("# hello\n\nUser-agent: *\n\n  disallow : /private   # secret\n", "5: disallow : /private   # secret"),
        ("User-agent: *\nDisallow: /\nDisallow: /private\nDisallow: /pri", "3: Disallow: /private"),
        ("User-agent: *\nDisallow: /private/x/\nDisallow: /p", "3: Disallow: /p"),
        ("User-agent: *\nDisallow: /private\n\nUser-agent: scraping-jobs\nDisallow: /p", "5: Disallow: /p"),
        ("User-agent: other\nDisallow: /private/x\n\nUser-agent: *\nDisallow: /p", "5: Disallow: /p"),
        ("User-agent: *\nAllow: /priv\nDisallow: /p\nDisallow: /*ate/x", "4: Disallow: /*ate/x"),
        ("User-agent: *\nDisallow: /private\nDisallow: /private", "2: Disallow: /private"),
        ("User-agent: *\nDisallow: /*vat*\x00\x07", None),
    ],
)
def test_the_rule_that_decided_is_named_with_its_line(text: str, line: str | None) -> None:
    said = refusal(text)
    assert said == (line and f"The robots.txt of a.example:80 disallows it in line {line}")


def test_a_named_line_is_clean_and_short() -> None:
    said = refusal("User-agent: *\nDisallow: /p*\u202e" + "*x" * 300 + "*$", "/p\u202e" + "x" * 400)
    assert said is not None
    assert len(said) < 300
    assert said.isprintable()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("User-agent: *\nCrawl-delay: 2.5", 2.5),
        ("User-agent: *\nCrawl-delay: 86400", MAX_CRAWL_DELAY),
        ("User-agent: *\nCrawl-delay: -1", 0),
        ("User-agent: *\nCrawl-delay: nan", 0),
        ("User-agent: *\nCrawl-delay: inf", 0),
        ("User-agent: *\nCrawl-delay: soon", 0),
        ("User-agent: *\nCrawl-delay: 1e-9", 1e-9),
        ("User-agent: other\nCrawl-delay: 5", 0),
        ("User-agent: *\nCrawl-delay: 5\n\nUser-agent: scraping-jobs\nCrawl-delay: 1", 1),
        ("", 0),
    ],
)
def test_a_crawl_delay_is_kept_within_bounds(text: str, seconds: float) -> None:
    assert RobotsFile(text.encode()).crawl_delay == seconds


def test_half_a_line_at_the_end_of_what_was_read_does_not_count() -> None:
    body = b"User-agent: *\nDisallow: /a\nDisallow: /"
    target = parse_target("http://a.example/x")
    assert RobotsFile(body, whole=False).refusal(target) is None
    assert RobotsFile(body, whole=True).refusal(target) is not None


PIECES = [
    *(
        b"User-agent: *\n",
        b"Disallow: /\xff",
        b"Allow: /%",
        b"*",
        b"$",
        b"\xef\xbb\xbf",
        b"\0",
        b"\n",
        b"#",
        b":",
        b"[",
    ),
    *(b"User agent ", b"Crawl-delay: 1e999", b"Request-rate: 1/0", b"Visit-time: 1-2", b"/", b"%zz", b"\xed\xa0\x80"),
]


@given(st.binary(max_size=300) | st.lists(st.sampled_from(PIECES)).map(b"".join))
def test_no_bytes_break_it(body: bytes) -> None:
    file = RobotsFile(body)
    for path in ("/", "/a?b=%FF", "//x", "/;p", "/%"):
        said = file.refusal(parse_target(f"http://[2001:db8::1]{path}"))
        assert said is None or said.isprintable()
    assert 0 <= file.crawl_delay <= MAX_CRAWL_DELAY


LONG = "/" + "ab" * 4000 + "?x=1"
DEAR = {
    "rules": b"Disallow: /path/%d\n",
    "wildcards": b"Disallow: /*a%d*b\n",
    "the same rule": b"Disallow: /\n",
    "groups": b"User-agent: a%d\nDisallow: /\n",
    "many stars": b"Disallow: /" + b"*a" * 200 + b"zz\n",
    "escapes": b"Disallow: /%%zz%%41%%C3%d\n",
    "junk": b"x\n",
}


@pytest.mark.parametrize("line", DEAR.values(), ids=DEAR.keys())
def test_no_file_is_dear_to_read_or_to_ask(line: bytes) -> None:
    """On a quiet machine none takes more than half a second of CPU."""
    lines = (line % number if b"%d" in line else line for number in range(MAX_BYTES))
    body = bytearray(b"User-agent: *\n")
    while len(body) < MAX_BYTES:
        body += next(lines)
    started = time.process_time()
    RobotsFile(bytes(body[:MAX_BYTES]), whole=False).refusal(parse_target(f"http://a.example{LONG}"))
    assert time.process_time() - started < 5


def test_a_group_of_thousands_of_names_and_rules_is_read_once_and_not_for_each_name() -> None:
    names = b"".join(b"User-agent: bot%d\n" % number for number in range(15_000))
    rules = b"".join(b"Disallow: /%d\n" % number for number in range(12_000))
    started = time.process_time()
    assert RobotsFile(names + rules).refusal(parse_target("http://a.example/1")) is None
    assert RobotsFile(b"User-agent: *\n" + names + rules).refusal(parse_target("http://a.example/1")) is not None
    assert time.process_time() - started < 5

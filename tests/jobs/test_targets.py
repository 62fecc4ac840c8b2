"""The URL parser: the handed cases, their kin, and what one form of a URL promises."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.targets import InvalidTarget, parse_target, resolve_target

HANDED = json.loads((Path(__file__).parent.parent / "cases" / "url_cases.json").read_text())

REFUSED = [
    "http//example.com/",
    "//example.com/",
    "/path",
    "http:/example.com/",
    "http:\\\\example.com\\",
    "http:////example.com/",
    "http://?x=1",
    "http://#part",
    "http://:80/",
    "https:///example.com/",
    "ws://example.com/",
    "javascript:alert(1)",
    "data:text/plain,hello",
    "gopher://example.com/",
    "view-source:http://example.com/",
    "http://user@example.com/",
    "http://user:secret@example.com/",
    "http://@example.com/",
    "http://:@example.com/",
    "http://example.com@/",
    "http://example.com:80@127.0.0.1/",
    "http://example.com\\.evil.example/",
    "http://example.com\\",
    "http://example.com:0/",
    "http://example.com:-1/",
    "http://example.com:+80/",
    "http://example.com:8o/",
    "http://example.com:99999999999999999999/",
    "http://example.com: 80/",
    "http://example.com:\uff18\uff10/",
    "http://example.com :80/",
    " http://example.com/",
    "http://example.com/ ",
    "\ufeffhttp://example.com/",
    "http://exam\u00a0ple.com/",
    "http://exam\u3000ple.com/",
    "http://exam\u2028ple.com/",
    "http://example.com/\n",
    "http://example.com/\x00",
    "http://exa\x00mple.com/",
    "http://example.com/\x7f",
    "http://example.com/\x85",
    "ht\ntp://example.com/",
    "http://example.com/\ud800",
    "http://exa\udfffmple.com/",
    "http://ex%61mple.com/",
    "http://%31%32%37.0.0.1/",
    "http://example.com%2f@127.0.0.1/",
    "http://example.com%00/",
    "http://exa<mple.com/",
    "http://exa|mple.com/",
    "http://exa^mple.com/",
    "http://exa[mple.com/",
    "http://a..b/",
    "http://.example/",
    "http://example../",
    "http://./",
    "http://" + "a" * 64 + "/",
    "http://" + "\u00fc" * 60 + ".example/",
    "http://" + "a." * 130 + "example/",
    "http://256.1.1.1/",
    "http://1.2.3.4.5/",
    "http://0x100000000/",
    "http://1.2.3.0x/x" + "y" * 9000,
    "http://[::1/",
    "http://[::1]x/",
    "http://[::g]/",
    "http://[1:2:3:4:5:6:7:8:9]/",
    "http://[::1%25lo]/",
    "http://[::1%lo]/",
    "http://[v1.fe80]/",
    "http://[]/",
    "http://[127.0.0.1]/",
    "http://example.com/" + "\u00e9" * 2000,
]

ACCEPTED = {
    "http://example.com": ("http://example.com/", "example.com:80"),
    "HtTpS://Example.COM": ("https://example.com/", "example.com:443"),
    "http://example.com:80/": ("http://example.com/", "example.com:80"),
    "http://example.com:0443/": ("http://example.com:443/", "example.com:443"),
    "https://example.com:80/": ("https://example.com:80/", "example.com:80"),
    "http://example.com:/": ("http://example.com/", "example.com:80"),
    "http://example.com./a": ("http://example.com./a", "example.com:80"),
    "http://example.com/a/../b/./c": ("http://example.com/b/c", "example.com:80"),
    "http://example.com/a\\b": ("http://example.com/a/b", "example.com:80"),
    "http://example.com/%7Eme": ("http://example.com/%7Eme", "example.com:80"),
    "http://example.com/caf\u00e9?q=\u00e9": ("http://example.com/caf%C3%A9?q=%C3%A9", "example.com:80"),
    "http://example.com/?q=a@b": ("http://example.com/?q=a@b", "example.com:80"),
    "http://example.com/u@v:w": ("http://example.com/u@v:w", "example.com:80"),
    "http://example.com#part": ("http://example.com/", "example.com:80"),
    "http://example.com/?": ("http://example.com/?", "example.com:80"),
    "http://a_b.example/": ("http://a_b.example/", "a_b.example:80"),
    "http://xn--bcher-kva.example/": ("http://xn--bcher-kva.example/", "xn--bcher-kva.example:80"),
    "http://\u4f8b\u3048.\u30c6\u30b9\u30c8/": ("http://xn--r8jz45g.xn--zckzah/", "xn--r8jz45g.xn--zckzah:80"),
    "http://fa\u00df.example/": ("http://xn--fa-hia.example/", "xn--fa-hia.example:80"),
    "http://[2606:2800:220:1:0:0:0:1]:8080/": ("http://[2606:2800:220:1::1]:8080/", "[2606:2800:220:1::1]:8080"),
    "http://3232235777/": ("http://192.168.1.1/", "192.168.1.1:80"),
    "http://" + "a" * 63 + ".example/": ("http://" + "a" * 63 + ".example/", "a" * 63 + ".example:80"),
}


@pytest.mark.parametrize("case", HANDED, ids=lambda case: ascii(case["url"])[:40])
def test_handed_cases(case: dict[str, str | int]) -> None:
    url = str(case["url"])
    if case["expect"] == 422:
        with pytest.raises(InvalidTarget):
            parse_target(url)
    else:
        assert parse_target(url).url.startswith("http")


@pytest.mark.parametrize("url", REFUSED, ids=lambda url: ascii(url)[:40])
def test_what_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(InvalidTarget, match=r"^[A-Z].*\.$"):
        parse_target(url)


@pytest.mark.parametrize(("url", "expected"), ACCEPTED.items(), ids=lambda value: ascii(value)[:40])
def test_one_form_for_each_url(url: str, expected: tuple[str, str]) -> None:
    target = parse_target(url)
    assert (target.url, target.host) == expected
    assert parse_target(target.url) == target


def test_the_parts_make_up_the_url() -> None:
    target = parse_target("https://Example.com:8443/a/b?c=d#e")
    assert (target.scheme, target.authority, target.origin) == (
        "https",
        "example.com:8443",
        "https://example.com:8443",
    )
    assert target.request_target == "/a/b?c=d"


@pytest.mark.parametrize(
    ("url", "params", "expected"),
    [
        ("http://a.example/", {"x": "1"}, "http://a.example/?x=1"),
        ("http://a.example/?x=0", {"x": 1, "y": 2.5}, "http://a.example/?x=0&x=1&y=2.5"),
        ("http://a.example/?", {"x": 1}, "http://a.example/?x=1"),
        ("http://a.example/#part", {"x": 1}, "http://a.example/?x=1"),
        ("http://a.example/", {"t": True, "f": False, "n": None}, "http://a.example/?t=true&f=false&n="),
        ("http://a.example/", {"l": ["a", 2], "e": []}, "http://a.example/?l=a&l=2"),
        ("http://a.example/", {"a b&": "\u00e9=#+/ "}, "http://a.example/?a%20b%26=%C3%A9%3D%23%2B%2F%20"),
        ("http://a.example/", {"": ""}, "http://a.example/?="),
        ("http://a.example/?x", {}, "http://a.example/?x"),
    ],
)
def test_params_are_appended_to_the_query(url: str, params: dict[str, object], expected: str) -> None:
    assert parse_target(url, params).url == expected


@pytest.mark.parametrize("value", [{"a": 1}, [["nested"]], [{"a": 1}], object(), "\ud800", "x" * 9000])
def test_params_that_no_query_can_carry_are_refused(value: object) -> None:
    with pytest.raises(InvalidTarget):
        parse_target("http://a.example/", {"x": value})


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("next", "http://a.example/dir/next"),
        ("/next", "http://a.example/next"),
        ("?q", "http://a.example/dir/page?q"),
        ("//b.example/x", "http://b.example/x"),
        ("https://b.example", "https://b.example/"),
        ("#part", "http://a.example/dir/page?x=1"),
        ("../../../up", "http://a.example/up"),
    ],
)
def test_a_reference_is_resolved_against_its_base(reference: str, expected: str) -> None:
    assert resolve_target("http://a.example/dir/page?x=1", reference).url == expected


@pytest.mark.parametrize("reference", ["mailto:a@b.example", "http://u:p@b.example/", "http://b.example:0/", "//"])
def test_a_reference_to_no_target_is_refused(reference: str) -> None:
    with pytest.raises(InvalidTarget):
        resolve_target("http://a.example/", reference)


@given(st.text(alphabet=string.printable + "\u00e9\u3002\uff0e\u00ad\u200b\u0660@\\[]%", max_size=40))
def test_whatever_is_accepted_is_stable_and_clean(rest: str) -> None:
    try:
        target = parse_target("http://" + rest)
    except InvalidTarget:
        return
    assert parse_target(target.url) == target
    assert target.url.isascii()
    assert target.url.isprintable()
    assert not set(target.authority) & set(" @\\/?#%")
    assert 1 <= int(target.host.rpartition(":")[2]) <= 65535

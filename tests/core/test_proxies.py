"""A proxy's URL: what it may be, and that nothing of it is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from core.proxies import InvalidProxy, Proxy, check_proxy, parse_proxy, seal_proxy, unseal_proxy
from core.sealing import SealBroken, seal, unseal


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://proxy.example:3128", Proxy("http", "proxy.example", 3128)),
        ("HTTP://Proxy.Example./", Proxy("http", "proxy.example", 80)),
        ("https://proxy.example", Proxy("https", "proxy.example", 443)),
        ("https://proxy.example:80", Proxy("https", "proxy.example", 80)),
        ("socks5://proxy.example", Proxy("socks5", "proxy.example", 1080)),
        ("socks5://proxy.example:80", Proxy("socks5", "proxy.example", 80)),
        ("socks5://[2001:db8::1]:1080", Proxy("socks5", "2001:db8::1", 1080)),
        ("http://0x7f.1:8080", Proxy("http", "127.0.0.1", 8080)),
        ("http://b\u00fccher.example", Proxy("http", "xn--bcher-kva.example", 80)),
        ("http://user:pass@proxy.example", Proxy("http", "proxy.example", 80, "user", "pass")),
        ("http://us%40er:p%3A%2F%C3%A9@proxy.example", Proxy("http", "proxy.example", 80, "us@er", "p:/\u00e9")),
        ("http://token@proxy.example", Proxy("http", "proxy.example", 80, "token", "")),
        ("http://:secret@proxy.example", Proxy("http", "proxy.example", 80, "", "secret")),
        ("http://user:a:b@proxy.example", Proxy("http", "proxy.example", 80, "user", "a:b")),
    ],
)
def test_a_proxy_is_read_whatever_spells_it(url: str, proxy: Proxy) -> None:
    assert parse_proxy(url) == proxy


REFUSED = """
proxy.example:3128 //proxy.example ftp://proxy.example socks4://proxy.example socks5h://proxy.example http://
http://:3128 http://proxy.example:0 http://proxy.example:65536 http://proxy.example:x http://proxy.example:
http://proxy.example/path http://proxy.example/?a http://proxy.example#a http://a@b@proxy.example
http://proxy%2eexample http://proxy\\example http://[::1 http://user%00:p@proxy.example http://u%0d%0aX:p@proxy.example
http://%ff:p@proxy.example http://a%3Ab:p@proxy.example socks5://:p@proxy.example http://user:p/@proxy.example
"""


@pytest.mark.parametrize(
    "url",
    [
        *REFUSED.split(),
        "",
        " http://proxy.example",
        "http://proxy.example\n",
        "http://pro xy.example",
        "http://\ud800@proxy.example",
        "http://\ud800.example",
        f"http://{'u' * 256}@proxy.example",
        f"http://{'%C3%A9' * 128}@proxy.example",
        f"http://{'a.' * 1100}example",
    ],
)
def test_what_is_no_proxy_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidProxy) as caught:
        parse_proxy(url)
    assert "secret" not in str(caught.value)
    assert not url or url not in str(caught.value)


def test_neither_credentials_nor_host_stand_in_its_text() -> None:
    proxy = parse_proxy("http://someone:hunter2@proxy.example:3128")
    for text in (repr(proxy), str(proxy), f"{proxy}", repr([proxy])):
        assert "hunter2" not in text
        assert "someone" not in text
        assert "proxy.example" not in text


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)


@given(st.sampled_from(["http", "https", "socks5"]), TEXT.map(lambda text: text.replace(":", "")), TEXT)
def test_what_is_sealed_comes_back_and_cannot_be_read_meanwhile(scheme: str, username: str, password: str) -> None:
    proxy = Proxy(scheme, "proxy.example", 3128, username, password if username else "")
    sealed = seal_proxy(proxy)
    assert unseal_proxy(sealed) == proxy
    assert sealed != seal_proxy(proxy)
    assert "proxy.example" not in sealed


def test_a_seal_holds_for_one_purpose_and_one_secret_key(settings: Settings) -> None:
    sealed = seal("plain", purpose="one")
    with pytest.raises(SealBroken):
        unseal(sealed, purpose="other")
    with pytest.raises(SealBroken):
        unseal(sealed[:-5] + "AAAA=", purpose="one")
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another key of enough length to be taken for one"
    with pytest.raises(SealBroken):
        unseal(sealed, purpose="one")
    settings.SECRET_KEY_FALLBACKS = [old]
    assert unseal(sealed, purpose="one") == "plain"


def test_a_proxy_that_cannot_be_read_any_more_says_so() -> None:
    with pytest.raises(InvalidProxy, match="SECRET_KEY"):
        unseal_proxy("gAAAAA")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://proxy.example", True),
        ("http://proxy.example:3128", False),
        ("socks5://proxy.example:1081", True),
        ("http://10.0.0.1", False),
        ("http://10.0.0.2:3128", True),
        ("http://127.0.0.1", False),
        ("http://localhost", False),
    ],
)
def test_a_proxy_that_the_guard_would_refuse_anyway_is_refused_at_once(
    url: str, allowed: bool, settings: Settings
) -> None:
    settings.EGRESS_ALLOW = ["10.0.0.2:3128"]
    settings.EGRESS_PORTS = ["1081"]
    proxy = parse_proxy(url)
    if url == "http://proxy.example:3128":
        settings.EGRESS_ALLOW = []
    if allowed:
        check_proxy(proxy)
        return
    with pytest.raises(InvalidProxy):
        check_proxy(proxy)

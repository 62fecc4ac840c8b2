"""The egress guard: what is denied whatever spells it, and what EGRESS_ALLOW opens."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.egress import BAD_PORTS, REFUSAL, EgressRules
from core.networks import Address, is_public
from jobs.targets import parse_target
from scraper.egress import BlockedTarget, EgressGuard, SystemResolver

DENIED = (
    "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254 "
    "168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.31.196.1 "
    "192.52.193.1 192.88.99.1 192.175.48.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1 "
    "203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 "
    "::ffff:8.8.8.8 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::a00:1 100::1 "
    "100:0:0:1::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 "
    "2002:7f00:1:: 2002:a9fe:a9fe:: 2002:808:808:: 2620:4f:8000::1 3fff::1 3fff:fff::1 4000::1 5f00::1 fc00::1 "
    "fd00:ec2::254 fd20:ce::254 fe80::1 fe80::a9fe:a9fe fe80::5efe:7f00:1 fec0::1 feff::1 ff02::1 "
    "2606:4700::5efe:7f00:1 2606:4700::200:5efe:a00:1"
)

PUBLIC = (
    "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 "
    "168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 "
    "192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2606:2800:220:1::1 2001:200::1 2001:4860:4860::8888 "
    "2003::1 2a00:1450:4001::1 2620:fe::fe"
)


def answering(*addresses: str) -> "Answers":
    return Answers([addresses])


class Answers:
    """A resolver that gives one prepared answer after the other, the last one for ever; counts its calls."""

    def __init__(self, answers: Sequence[Sequence[str]]) -> None:
        self._answers = answers
        self.calls = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.calls += 1
        return self._answers[min(self.calls, len(self._answers)) - 1]


def resolve(guard: EgressGuard, host: str, port: int = 443) -> list[str]:
    return list(asyncio.run(guard.resolve(host, port)))


@pytest.mark.parametrize("address", DENIED.split())
def test_an_address_of_no_public_host_is_denied(address: str) -> None:
    assert not is_public(ip_address(address))
    with pytest.raises(BlockedTarget):
        resolve(EgressGuard(), address)
    with pytest.raises(BlockedTarget):
        resolve(EgressGuard(resolver=answering(address)), "name.example")


@pytest.mark.parametrize("address", PUBLIC.split())
def test_a_public_address_passes(address: str) -> None:
    assert resolve(EgressGuard(), address) == [address]
    assert resolve(EgressGuard(resolver=answering(address)), "name.example") == [address]


@given(st.ip_addresses(v=6))
def test_nothing_outside_the_public_ipv6_range_passes(address: IPv6Address) -> None:
    assert not is_public(address) or 0x2000 <= int(address) >> 112 <= 0x3FFF


@given(st.ip_addresses(v=4))
def test_no_form_of_ipv4_inside_ipv6_passes(inner: IPv4Address) -> None:
    low = int(inner)
    forms = [low, 0xFFFF << 32 | low, 0xFFFF << 48 | low, 0x64FF9B << 96 | low, 0x2002 << 112 | low << 80]
    forms += [0x20010000 << 96 | (low ^ 0xFFFFFFFF), 0x2606 << 112 | 0x5EFE << 32 | low]
    assert not any(is_public(IPv6Address(form)) for form in forms)


def test_one_private_address_denies_the_name() -> None:
    with pytest.raises(BlockedTarget):
        resolve(EgressGuard(resolver=answering("93.184.216.34", "10.0.0.1")), "mixed.example")


def test_the_error_names_no_address() -> None:
    with pytest.raises(BlockedTarget) as caught:
        resolve(EgressGuard(resolver=answering("10.11.12.13")), "inside.example")
    assert "10.11" not in str(caught.value)
    assert (caught.value.code, caught.value.detail) == ("blocked_target", REFUSAL)


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "localhost.", "a.localhost", "A.LocalHost."])
def test_localhost_is_never_asked_of_a_resolver(name: str) -> None:
    answers = answering("93.184.216.34")
    with pytest.raises(BlockedTarget):
        resolve(EgressGuard(resolver=answers), name)
    assert answers.calls == 0


def test_localhost_is_what_is_allowed_of_it() -> None:
    assert resolve(EgressGuard(["127.0.0.1:8000"]), "localhost", 8000) == ["127.0.0.1"]
    assert resolve(EgressGuard(["[::1]"]), "localhost", 8000) == ["::1"]
    with pytest.raises(BlockedTarget):
        resolve(EgressGuard(["127.0.0.1:8000"]), "localhost", 8001)


def test_a_name_without_addresses_is_no_blocked_target() -> None:
    with pytest.raises(socket.gaierror):
        resolve(EgressGuard(resolver=answering()), "nothing.example")


@pytest.mark.parametrize(
    ("entry", "address", "port", "passes"),
    [
        ("10.0.0.0/8", "10.1.2.3", 80, True),
        ("10.0.0.0/8", "11.1.2.3", 25, False),
        (" 10.0.0.0/8 ", "10.1.2.3", 25, True),
        ("127.0.0.1", "127.0.0.1", 9, True),
        ("127.0.0.1", "127.0.0.2", 80, False),
        ("127.0.0.1:8000", "127.0.0.1", 8000, True),
        ("127.0.0.1:8000", "127.0.0.1", 8001, False),
        ("10.0.0.0/8:8000", "10.9.9.9", 8000, True),
        ("::1", "::1", 80, True),
        ("[::1]", "::1", 80, True),
        ("[::1]:8000", "::1", 8000, True),
        ("[::1]:8000", "::1", 80, False),
        ("fd00::/8", "fd12::1", 80, True),
        ("127.0.0.1", "::ffff:127.0.0.1", 80, False),
        ("", "127.0.0.1", 80, False),
    ],
)
def test_an_exemption_covers_what_it_says(entry: str, address: str, port: int, passes: bool) -> None:
    assert EgressRules([entry]).permits(ip_address(address), port) is passes


@pytest.mark.parametrize(
    "entry",
    [
        "localhost",
        "localhost:80",
        "10.0.0.1/8",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:x",
        "1.2.3",
        "[::1]:",
        "[::1]:0",
        "::1:8000:x",
        "http://127.0.0.1",
        "*",
        "127.0.0.1:\u0668\u0660",
    ],
)
def test_an_entry_that_is_none_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match=r"'.*' (is not an address|has a port)") as caught:
        EgressGuard([entry])
    assert repr(entry) in str(caught.value)


OPEN = [80, 443]
CLOSED = [81, 444, 8000, 8080, 8443, 65535, *sorted(BAD_PORTS - {0})]


@pytest.mark.parametrize("port", OPEN)
def test_the_ports_of_the_web_are_open(port: int) -> None:
    assert resolve(EgressGuard(resolver=answering("1.1.1.1")), "name.example", port) == ["1.1.1.1"]


def test_every_other_port_is_closed_and_no_resolver_asked() -> None:
    answers = answering("1.1.1.1")
    for port in CLOSED:
        for host in ("name.example", "1.1.1.1"):
            with pytest.raises(BlockedTarget):
                resolve(EgressGuard(resolver=answers), host, port)
    assert answers.calls == 0


def test_a_listed_port_is_open_too() -> None:
    guard = EgressGuard(resolver=answering("1.1.1.1"), ports=["8080", " 9000-9002 "])
    for port in (80, 443, 8080, 9000, 9001, 9002):
        assert resolve(guard, "name.example", port) == ["1.1.1.1"]
    for port in (8081, 8999, 9003):
        with pytest.raises(BlockedTarget):
            resolve(guard, "name.example", port)


def test_ports_of_other_protocols_stay_closed_whatever_is_listed() -> None:
    rules = EgressRules(ports=["1-65535"])
    address = ip_address("1.1.1.1")
    assert {25, 22, 465, 587, 6667} <= BAD_PORTS
    assert {port for port in range(1, 65536) if not rules.permits(address, port)} == BAD_PORTS - {0}


@pytest.mark.parametrize(
    "entry", ["", "x", "0", "65536", "80-", "-80", "90-80", "8_0", "\u0668\u0660", "80 - 90x", "+80"]
)
def test_ports_that_are_none_are_named(entry: str) -> None:
    with pytest.raises(ValueError, match=r"'.*' is (neither a port|a range)") as caught:
        EgressRules(ports=[entry])
    assert repr(entry) in str(caught.value)


def test_an_exempt_address_has_every_port_that_its_entry_names() -> None:
    rules = EgressRules(["10.0.0.0/8", "192.168.0.1:25"])
    assert rules.permits(ip_address("10.0.0.1"), 25)
    assert rules.permits(ip_address("192.168.0.1"), 25)
    assert not rules.permits(ip_address("192.168.0.1"), 26)


@pytest.mark.parametrize(
    ("allow", "name", "port", "refused"),
    [
        ([], "name.example", 80, False),
        ([], "name.example", 8080, True),
        (["10.0.0.1:9"], "name.example", 8080, True),
        (["10.0.0.1:8080"], "name.example", 8080, False),
        (["10.0.0.0/8"], "name.example", 8080, False),
        ([], "1.1.1.1", 443, False),
        ([], "10.0.0.1", 443, True),
        (["10.0.0.1"], "10.0.0.1", 443, False),
        (["10.0.0.2"], "10.0.0.1", 443, True),
        ([], "::1", 80, True),
        (["::1"], "::1", 80, False),
        ([], "localhost", 80, True),
        (["127.0.0.1:80"], "a.localhost.", 80, False),
        (["127.0.0.1:80"], "localhost", 81, True),
    ],
)
def test_what_no_resolver_could_save_is_known_at_once(allow: list[str], name: str, port: int, refused: bool) -> None:
    assert EgressRules(allow).refuses_unseen(name, port) is refused


@given(st.sampled_from(["127.0.0.1:8000", "10.0.0.0/8", "::1"]), st.ip_addresses(), st.integers(1, 65535))
def test_intake_never_refuses_what_the_guard_would_pass(entry: str, address: Address, port: int) -> None:
    rules = EgressRules([entry])
    if rules.permits(address, port):
        assert not rules.refuses_unseen("name.example", port)
        assert not rules.refuses_unseen(str(address), port)


def test_the_system_resolver_gives_each_address_once() -> None:
    found = list(asyncio.run(SystemResolver(threads=1)("127.0.0.1", 80)))
    assert found == ["127.0.0.1"]


def spelled(number: int, base: int) -> str:
    return {8: f"0{number:o}", 10: str(number), 16: f"0x{number:x}"}[base]


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """An address of 127.0.0.0/8, 10.0.0.0/8 or 169.254.0.0/16 as one to four numbers (WHATWG, "IPv4 parser")."""
    network = draw(st.sampled_from(["127.0.0.0/8", "10.0.0.0/8", "169.254.0.0/16"]))
    value = int(draw(st.ip_addresses(network=network)))
    parts = draw(st.integers(1, 4))
    numbers = [value >> (24 - 8 * index) & 0xFF for index in range(parts - 1)]
    numbers.append(value & (1 << (8 * (5 - parts))) - 1)
    texts = [spelled(number, draw(st.sampled_from([8, 10, 16]))) for number in numbers]
    dot = draw(st.sampled_from([".", "\u3002", "\uff0e", "\uff61"]))
    return dot.join(texts) + draw(st.sampled_from(["", "."]))


@given(spellings(), st.sampled_from(["http", "https"]))
def test_every_spelling_of_a_private_address_is_seen_through(host: str, scheme: str) -> None:
    target = parse_target(f"{scheme}://{host}/")
    assert EgressRules().refuses_unseen(target.name, target.port)

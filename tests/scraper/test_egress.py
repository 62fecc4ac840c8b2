"""The egress guard: what is denied whatever spells it, and what EGRESS_ALLOW opens."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scraper.egress import BAD_PORTS, BlockedTarget, EgressGuard, SystemResolver, is_public

DENIED = (
    "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254 "
    "168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 "
    "192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 "
    "239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:8.8.8.8 "
    "::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::a00:1 100::1 100:0:0:1::1 "
    "2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: "
    "2002:a9fe:a9fe:: 2002:808:808:: 3fff::1 3fff:fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 "
    "fe80::5efe:7f00:1 fec0::1 feff::1 ff02::1 2606:4700::5efe:7f00:1 2606:4700::200:5efe:a00:1"
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
    assert caught.value.code == "blocked_target"


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
    assert EgressGuard([entry]).permits(ip_address(address), port) is passes


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


def test_an_operators_own_public_network_can_be_denied_with_exceptions() -> None:
    guard = EgressGuard(["93.184.216.34"], deny=["93.184.216.0/24"])
    assert guard.permits(ip_address("93.184.216.34"), 443)
    assert not guard.permits(ip_address("93.184.216.35"), 443)
    assert guard.permits(ip_address("93.184.217.1"), 443)


def test_ports_of_other_protocols_are_denied() -> None:
    guard = EgressGuard()
    assert {25, 22, 465, 587, 6667} <= BAD_PORTS
    assert not any(guard.permits(ip_address("1.1.1.1"), port) for port in BAD_PORTS)
    assert all(guard.permits(ip_address("1.1.1.1"), port) for port in (80, 443, 8000, 8080, 8443, 65535))


def test_a_list_of_ports_is_exhaustive() -> None:
    guard = EgressGuard(ports=[80, 443])
    assert guard.permits(ip_address("1.1.1.1"), 443)
    assert not guard.permits(ip_address("1.1.1.1"), 8080)


def test_the_system_resolver_gives_each_address_once() -> None:
    found = list(asyncio.run(SystemResolver(threads=1)("127.0.0.1", 80)))
    assert found == ["127.0.0.1"]

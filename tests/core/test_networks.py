"""Which addresses count as public, beside the lists of others; networks and ports as operators write them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.networks import Network, is_public, read_exemption, read_ports
from tests.core.special_purpose import BEYOND_THE_LISTS, IANA, METADATA, MICROSOFT

LISTED = (IANA + MICROSOFT).split()
networks = st.sampled_from([ip_network(network) for network in dict.fromkeys(LISTED)])


@pytest.mark.parametrize("network", LISTED)
def test_the_ends_of_every_range_on_others_lists_are_denied(network: str) -> None:
    whole = ip_network(network)
    assert not is_public(whole[0])
    assert not is_public(whole[-1])


@given(networks, st.data())
def test_whatever_lies_in_a_range_on_others_lists_is_denied(network: Network, data: st.DataObject) -> None:
    assert not is_public(network[data.draw(st.integers(0, network.num_addresses - 1))])


@pytest.mark.parametrize("address", (METADATA + BEYOND_THE_LISTS).split())
def test_what_a_list_of_registries_misses_is_denied(address: str) -> None:
    assert not is_public(ip_address(address))


def test_the_other_list_alone_would_let_ipv4_in_by_its_retired_forms() -> None:
    theirs = [ip_network(network) for network in MICROSOFT.split()]
    passed = [text for text in BEYOND_THE_LISTS.split() if not any(ip_address(text) in network for network in theirs)]
    assert {"::127.0.0.1", "::ffff:0:127.0.0.1", "2606:4700::5efe:127.0.0.1"} <= set(passed)


@pytest.mark.parametrize(
    ("entry", "network", "port"),
    [
        ("10.1.2.3", "10.1.2.3/32", None),
        (" 10.1.2.3:80 ", "10.1.2.3/32", 80),
        ("10.0.0.0/8", "10.0.0.0/8", None),
        ("10.0.0.0/8:8000", "10.0.0.0/8", 8000),
        ("::1", "::1/128", None),
        ("[::1]", "::1/128", None),
        ("[::1]:80", "::1/128", 80),
        ("fd00::/8", "fd00::/8", None),
    ],
)
def test_an_exemption_is_read_as_operators_write_it(entry: str, network: str, port: int | None) -> None:
    read = read_exemption(entry)
    assert (str(read.network), read.port) == (network, port)


@pytest.mark.parametrize(
    "entry", ["", "localhost", "10.0.0.0/33", "10.1.2.3/8", "10.1.2.3:0", "10.1.2.3:99999", "10.1.2", "a:80"]
)
def test_what_names_no_network_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_exemption(entry)
    assert repr(entry) in str(caught.value)


def test_ports_are_read_one_by_one_or_as_a_range() -> None:
    assert list(read_ports("8080")) == [8080]
    assert list(read_ports(" 8000-8002 ")) == [8000, 8001, 8002]

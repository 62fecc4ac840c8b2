"""Requests as Django's door makes them, in front of everything that Django itself could answer."""

from __future__ import annotations

import asyncio
import encodings.aliases
import json
from typing import Any

import pytest

from core.gateway import Gateway
from core.requests import Handler, UnreadableHeadError, Utf8Request
from tests.core.test_gateway import FakeExchange, FakeHeaders, FakeScope, environ

CODECS = sorted({*encodings.aliases.aliases, *encodings.aliases.aliases.values(), "idna", "punycode", "undefined"})
QUERIES = ["x=1", "x=%ff%fe", "x=a%C3%A9.b&x=xn--%ff"]


def ask(door: Gateway, query: str, **headers: str) -> tuple[int, Any]:
    """What a browserless client gets for `GET /healthz`."""
    exchange = FakeExchange()
    pairs = [("host", "localhost"), *((name.replace("_", "-"), value) for name, value in headers.items())]
    scope = FakeScope(FakeHeaders(list(pairs)), path="/healthz", method="GET", query_string=query)
    asyncio.run(door.__rsgi__(scope, exchange))
    assert exchange.answer is not None
    return exchange.answer[0], json.loads(exchange.answer[2])


@pytest.fixture(scope="module")
def door() -> Gateway:
    """Django behind the gateway, as in the web role."""
    return Gateway(Handler(), threads=1, body_limit=1000, body_seconds=1.0)


@pytest.mark.parametrize("query", QUERIES)
def test_no_charset_keeps_a_query_from_being_read(door: Gateway, query: str) -> None:
    types = [f"application/json; charset={codec}" for codec in CODECS]
    assert {kind: answer for kind in types if (answer := ask(door, query, content_type=kind)[0]) != 200} == {}


@pytest.mark.parametrize("charset", ["hex", "utf-16", "latin-1"])
def test_the_query_is_utf_8_and_parsers_see_what_the_client_named(charset: str) -> None:
    head = environ(("content-type", f"application/json; charset={charset}"), query_string="x=%C3%A9")
    request = Utf8Request(head)
    assert (request.GET["x"], request.encoding, request.content_params) == ("\u00e9", "utf-8", {"charset": charset})


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/json"])
def test_too_many_parameters_are_no_fault_of_ours_with_a_charset_or_without(door: Gateway, kind: str) -> None:
    assert ask(door, "a&" * 2000, content_type=kind)[0] == 200, "nobody looks at them here"


def test_a_head_of_which_django_makes_no_request_is_400(door: Gateway) -> None:
    kind = "a/b; x*=nope'x'y"
    status, body = ask(door, "", content_type=kind)
    assert (status, body["code"]) == (400, "malformed_request")
    with pytest.raises(UnreadableHeadError):
        Utf8Request(environ(("content-type", kind)))


@pytest.mark.parametrize("codec", ["nope", "hex", "zip", "idna", "utf-16", "undefined", "unicode_escape"])
@pytest.mark.parametrize("value", ["y", "%ff%00", "%5Cx"])
@pytest.mark.parametrize("name", ["content_type", "accept", "cookie"])
def test_no_encoded_parameter_is_a_fault_of_ours(door: Gateway, name: str, codec: str, value: str) -> None:
    assert ask(door, "x=1", **{name: f"text/html; charset*={codec}'x'{value}"})[0] in (200, 400)

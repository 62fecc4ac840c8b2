"""What is refused at intake, how it is told, and that nothing is ever a 500."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from core.egress import REFUSAL
from core.errors import ValidationFailed
from jobs.submission import MAX_PROBLEMS, read_submission
from tests.factories import client_of, make_tenant

NOW = datetime(2026, 11, 29, tzinfo=UTC)
URL_CASES = json.loads((Path(__file__).parents[1] / "cases" / "url_cases.json").read_text())
JOBS = "/api/v1/jobs"


def problems_of(document: object) -> dict[str, str]:
    """Each problem's pointer and text; empty where the document is accepted."""
    try:
        read_submission(document, now=NOW)
    except ValidationFailed as failure:
        return {problem.pointer: problem.detail for problem in failure.errors} or {"nothing": "refused without a word"}
    return {}


def problems_with(**values: Any) -> dict[str, str]:
    return problems_of({"url": "http://example.com/", **values})


@pytest.mark.parametrize("document", [[], "x", 1, None, True, [{"url": "http://example.com/"}]])
def test_a_job_is_an_object(document: object) -> None:
    assert list(problems_of(document)) == [""]


@pytest.mark.parametrize("document", [{}, {"url": None}])
def test_the_url_is_required(document: dict[str, Any]) -> None:
    assert problems_of(document) == {"/url": "Is required."}


@pytest.mark.parametrize("case", URL_CASES, ids=lambda case: case["url"][:40])
def test_urls_of_the_shared_cases(case: dict[str, Any]) -> None:
    refused = bool(problems_of({"url": case["url"]}))
    if case["expect"] == 422:
        assert refused
    if case["expect"] == 202:
        assert not refused


# The spellings of 127.0.0.1 that parsers have been fooled with, and addresses of clouds' own services.
INSIDE = """http://127.1/ http://0x7f.1/ http://0x7f.0x0.0x0.0x1/ http://0177.0.0.1/ http://2130706433/
http://017700000001/ http://0x7F000001/ http://127.0.0.1.:80/ http://127\u30020\uff0e0\uff611/ http://\u2460\u2461\u2466.0.0.1/
http://[::ffff:7f00:1]/ http://[0:0:0:0:0:FFFF:127.0.0.1]/ http://[::ffff:169.254.169.254]/ http://[::1]/ http://0/
https://169.254.169.254/latest/ http://[fd00:ec2::254]/ http://[fd20:ce::254]/ http://100.100.100.200/
http://[2002:a00:1::]/ http://[64:ff9b:1::a00:1]/ http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/ http://[fec0::1]/
http://[2606:4700::5efe:10.0.0.1]/ http://Foo.LocalHost./ http://224.0.0.1/""".replace("\n", " ").split(" ")


@pytest.mark.parametrize("name", ["url", "callback_url"])
@pytest.mark.parametrize("url", INSIDE, ids=ascii)
def test_an_address_that_is_not_public_is_refused_at_once(name: str, url: str, settings: Settings) -> None:
    settings.EGRESS_ALLOW = ()
    assert problems_with(**{name: url}) == {f"/{name}": REFUSAL}


@pytest.mark.parametrize("url", ["http://example.com:8080/", "https://1.1.1.1:22/", "https://example.com:8/"])
def test_a_port_that_is_closed_is_refused_at_once_by_the_same_words(url: str, settings: Settings) -> None:
    settings.EGRESS_ALLOW = ("10.0.0.1:9000",)
    assert problems_with(url=url) == {"/url": REFUSAL}


def test_what_the_operator_opened_is_accepted(settings: Settings) -> None:
    settings.EGRESS_ALLOW = ("10.0.0.1:9000", "::1")
    settings.EGRESS_PORTS = ("8443",)
    for url in ("http://10.0.0.1:9000/", "http://[::1]:25/", "https://example.com:8443/", "http://name.example:9000/"):
        assert problems_with(url=url) == {}


def test_all_problems_are_told_at_once() -> None:
    assert set(problems_of({"method": "get", "nope": 1, "tags": [1, "ok", ""], "max_attempts": 11})) == {
        "/url",
        "/method",
        "/nope",
        "/tags/0",
        "/tags/2",
        "/max_attempts",
    }


def test_the_answer_stays_small_whatever_is_sent() -> None:
    document = {"x" * 100_000: 1, **{f"field{index}": 1 for index in range(5000)}}
    with pytest.raises(ValidationFailed) as failure:
        read_submission(document, now=NOW)
    assert len(failure.value.errors) == MAX_PROBLEMS
    assert max(len(problem.pointer) for problem in failure.value.errors) < 300


def test_pointers_escape_slash_and_tilde() -> None:
    assert list(problems_with(**{"a/b~c": 1})) == ["/a~1b~0c"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("url", 5),
        ("method", "get"),
        ("method", "TRACE"),
        ("method", ["GET"]),
        ("params", "a=b"),
        ("params", []),
        ("headers", []),
        ("headers", [["Accept", "*/*"]]),
        ("body", 5),
        ("body", {}),
        ("body_base64", "a"),
        ("body_base64", "YQ"),
        ("body_base64", "Y Q=="),
        ("body_base64", "YQ==\n"),
        ("body_base64", "-_-_"),
        ("body_base64", "é"),
        ("priority", "urgent"),
        ("priority", "High"),
        ("priority", 1),
        ("callback_url", "ftp://example.com/"),
        ("callback_url", "http://user:pass@example.com/"),
        ("callback_url", ""),
        ("tags", "a"),
        ("tags", ["a"] * 11),
        ("run_at", "2027-01-01T00:00:00"),
        ("run_at", "2027-01-01"),
        ("run_at", "tomorrow"),
        ("run_at", 1798761600),
        ("run_at", "2027-02-29T00:00:00Z"),
        ("run_at", "2027-01-01T25:00:00Z"),
        ("run_at", "0001-01-01T00:00:00+23:59"),
        ("run_at", "9999-12-31T23:59:59-01:00"),
        ("run_at", "2027-12-31T00:00:00Z"),
        ("run_at", "２027-01-01T00:00:00Z"),
        ("deadline_seconds", 0),
        ("deadline_seconds", 301),
        ("deadline_seconds", "5"),
        ("deadline_seconds", 5.0),
        ("deadline_seconds", True),
        ("deadline_seconds", 10**60),
        ("max_attempts", 0),
        ("max_attempts", 11),
        ("max_attempts", -1),
        ("max_attempts", True),
        ("max_bytes", 0),
        ("max_bytes", 50 * 1024 * 1024 + 1),
        ("retry_unsafe", 1),
        ("retry_unsafe", "true"),
        ("executor", "browser"),
        ("follow_redirects", 0),
        ("respect_robots", "yes"),
    ],
)
def test_a_wrong_value_is_named_by_its_pointer(name: str, wrong: object) -> None:
    assert list(problems_of({"url": "http://example.com/", "method": "POST", name: wrong})) == [f"/{name}"]


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        (5, "Must be a string"),
        ("", "scheme://host:port"),
        ("proxy.example:80", "scheme://host:port"),
        ("ftp://user:hunter2@proxy.example", "http://, https://, socks5://"),
        ("socks5h://user:hunter2@proxy.example", "Write socks5"),
        ("http://user:hunter2@proxy.example/path", "scheme://host:port"),
        ("http://user:hunter2@10.0.0.1", "may connect to"),
        ("http://user:hunter2@\ud800.example", "not valid"),
        ("http://hunter2\0@proxy.example", "control character"),
        (f"http://{'hunter2' * 400}@proxy.example", "longer than"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_without_being_repeated(proxy: object, said: str) -> None:
    problem = problems_with(proxy=proxy)["/proxy"]
    assert said in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "content-length", "Transfer-Encoding", "CONNECTION", "Expect", "Upgrade", "TE", "Trailer"),
        *("Proxy-Connection", "proxy-authorization", "", "a b", "a:b", "a\r\nb", "é", "a\0b"),
    ],
)
def test_forbidden_or_impossible_header_names(name: str) -> None:
    assert len(problems_with(headers={name: "x"})) == 1


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "a\x7f", "日本", "\u0100", 5, None, ["x"]])
def test_impossible_header_values(value: object) -> None:
    assert list(problems_with(headers={"X-A": value})) == ["/headers/X-A"]


@pytest.mark.parametrize("value", ["", "a b", "a\tb", "Zoë", "ÿ", '"quoted", list; q=1'])
def test_header_values_that_are_fine(value: str) -> None:
    assert problems_with(headers={"X-A": value}) == {}


def test_headers_are_bounded() -> None:
    assert problems_with(headers={f"X-{index}": "v" for index in range(101)})
    assert problems_with(headers={"X-A": "v" * 40_000})
    assert problems_with(headers={"X-A": "1", "x-a": "2"})


def test_nested_params_are_refused() -> None:
    assert list(problems_with(params={"a": {"b": 1}, "c": [[1]], "ok": [1, "x", None]})) == ["/params/a", "/params/c"]
    assert problems_with(params={"a": list(range(1001))})
    assert problems_with(params={"a": "x" * 9000})


def test_one_body_at_most_and_none_for_get_and_head() -> None:
    assert list(problems_with(method="POST", body="a", body_base64="YQ==")) == ["/body_base64"]
    assert list(problems_with(body="a")) == ["/body"]
    assert list(problems_with(method="HEAD", body_base64="YQ==")) == ["/body_base64"]
    assert problems_with(body="") == {}
    assert problems_with(method="DELETE", body="a") == {}


def test_run_at_is_bounded_and_needs_a_zone() -> None:
    assert problems_with(run_at=(NOW + timedelta(days=366)).isoformat()) == {}
    assert problems_with(run_at="2027-01-01t00:00:00.123456789z") == {}
    assert problems_with(run_at="2016-12-31T23:59:60Z") == {}
    assert "zone" in problems_with(run_at="2027-01-01T00:00:00")["/run_at"]


@pytest.mark.django_db
def test_problems_are_told_as_problem_json() -> None:
    answer = client_of(make_tenant()).post(JOBS, {"url": "ftp://x/", "b": 1}, content_type="application/json")
    body = answer.json()
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    assert (body["status"], body["code"], body["instance"]) == (422, "validation_failed", JOBS)
    assert {problem["pointer"] for problem in body["errors"]} == {"/url", "/b"}


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = [
    *("url", "method", "params", "headers", "body", "body_base64", "priority", "callback_url", "tags", "run_at"),
    *("deadline_seconds", "max_attempts", "max_bytes", "retry_unsafe", "executor", "follow_redirects"),
    *("respect_robots", "proxy", "unknown"),
]
PLAUSIBLE = {
    "url": st.text(max_size=30).map("http://example.com/".__add__) | st.text(max_size=10).map("http://".__add__),
    "method": st.sampled_from(["GET", "POST", "PUT"]),
    "headers": st.dictionaries(st.text(st.characters(codec="latin-1"), max_size=8), st.text(max_size=8), max_size=3),
    "params": st.dictionaries(st.text(max_size=8), st.text(max_size=8) | st.integers() | st.floats(), max_size=3),
    "body": st.text(max_size=20),
    "tags": st.lists(st.text(max_size=8), max_size=3),
    "run_at": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    "max_bytes": st.integers(),
}
JOBLIKE = st.fixed_dictionaries({}, optional={name: JUNK | PLAUSIBLE.get(name, JUNK) for name in NAMES})


@pytest.mark.django_db
@hypothesis_settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(document=JUNK | JOBLIKE | JOBLIKE.map(lambda given: {"url": "http://example.com/", **given}))
def test_no_json_body_is_ever_a_500(shared_client: Client, document: object) -> None:
    answer = shared_client.generic("POST", JOBS, json.dumps(document), content_type="application/json")
    assert answer.status_code in (202, 400, 422), answer.content
    assert answer["Content-Type"] in ("application/json", "application/problem+json")


@pytest.mark.django_db
@hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=60))
def test_no_bytes_are_ever_a_500(shared_client: Client, body: bytes) -> None:
    answer = shared_client.generic("POST", JOBS, body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)


@pytest.fixture
def shared_client(db: None) -> Client:
    return client_of(make_tenant())

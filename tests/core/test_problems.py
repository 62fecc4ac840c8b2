"""What a caller sees of every kind of error."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client
from pytest_django.fixtures import Settings
from rest_framework.exceptions import ErrorDetail, ValidationError

from core.problems import Problem, problem_of
from tests.core.failing_urls import FAILURES

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPTS = [None, "*/*", "application/json", "application/problem+json", "text/plain, */*;q=0.1"]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.core.failing_urls")]


@pytest.fixture
def client() -> Client:
    """A client that meets a 500 as its caller would."""
    return Client(raise_request_exception=False)


def assert_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == f"/problems/{code}"
    assert body["request_id"] == response["X-Request-Id"]
    assert body["title"]
    assert body["detail"]
    assert response["Content-Length"] == str(len(response.content))
    assert response.content.endswith(b"}\n")
    return body


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("place", ["api", "plain"])
@pytest.mark.parametrize("name", FAILURES)
def test_every_error_is_a_problem(client: Client, settings: Settings, name: str, place: str, debug: bool) -> None:
    settings.DEBUG = debug
    _, status, code = FAILURES[name]
    body = assert_problem(client.get(f"/{place}/{name}"), status, code)
    assert body["instance"] == f"/{place}/{name}"
    assert "secret" not in str(body)
    assert "password" not in str(body)


@pytest.mark.parametrize("accept", ACCEPTS)
@pytest.mark.parametrize("path", ["/api/bug", "/plain/bug", "/nowhere"])
def test_no_client_gets_html_without_asking(client: Client, path: str, accept: str | None) -> None:
    headers = {} if accept is None else {"Accept": accept}
    response = client.get(path, headers=headers)
    assert response["Content-Type"] == "application/problem+json"


def test_a_person_gets_the_page_that_django_would_show(client: Client) -> None:
    response = client.get("/nowhere", headers={"Accept": BROWSER})
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")


# Not the statement's timeout: it spoils the transaction that this test, unlike a request, runs in.
@pytest.mark.parametrize("name", [name for name in FAILURES if name != "statement-timeout"])
def test_a_person_gets_a_page_of_the_same_status(client: Client, name: str) -> None:
    status = FAILURES[name][1]
    for place in ("api", "plain"):
        response = client.get(f"/{place}/{name}", headers={"Accept": BROWSER})
        assert response["Content-Type"].startswith("text/html")
        assert response.status_code == status
        assert "password" not in response.content.decode()


def test_a_person_is_told_that_the_database_is_down(client: Client) -> None:
    response = client.get("/plain/database-down", headers={"Accept": BROWSER})
    assert response.status_code == 503
    assert response["Content-Type"].startswith("text/html")
    assert "password" not in response.content.decode()


@pytest.mark.parametrize("debug", [False, True])
def test_a_middleware_that_cannot_reach_the_database_is_503(client: Client, settings: Settings, debug: bool) -> None:
    settings.DEBUG = debug
    settings.MIDDLEWARE = [*django_settings.MIDDLEWARE, "tests.core.failing_urls.FailsInTheMiddle"]
    response = client.get("/middleware")
    assert_problem(response, 503, "unavailable")
    assert response["Retry-After"]


@pytest.mark.parametrize("name", ["throttled", "slow-down", "database-down", "statement-timeout", "unavailable"])
def test_429_and_503_say_when_to_come_again(client: Client, name: str) -> None:
    assert int(client.get(f"/api/{name}")["Retry-After"]) > 0


def test_a_wrong_method_names_the_right_ones(client: Client) -> None:
    response = client.delete("/api/bug")
    assert_problem(response, 405, "method_not_allowed")
    assert response["Allow"] == "GET, POST, HEAD, OPTIONS"


def test_a_type_that_we_cannot_give_is_406_in_json(client: Client) -> None:
    assert_problem(client.get("/api/bug", headers={"Accept": "application/xml"}), 406, "not_acceptable")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "text/html, application/xml;q=0.5"])
def test_the_schema_refuses_other_types_with_a_problem(client: Client, accept: str) -> None:
    assert_problem(client.get("/api/v1/schema", headers={"Accept": accept}), 406, "not_acceptable")


@pytest.mark.parametrize("kind", ["application/vnd.oai.openapi+json", "application/json"])
def test_the_schema_comes_under_either_name_and_ends_its_line(client: Client, kind: str) -> None:
    answer = client.get("/api/v1/schema", headers={"Accept": kind})
    assert (answer.status_code, answer["Content-Type"]) == (200, kind)
    assert answer.content.endswith(b"}\n")
    assert answer["Content-Length"] == str(len(answer.content))


def test_a_key_that_cannot_be_one_names_nothing_but_in_the_api_it_is_a_fault_of_ours(client: Client) -> None:
    assert_problem(client.get("/plain-key/x"), 404, "not_found")
    assert_problem(client.get("/api-key/x"), 500, "internal_error")
    page = client.get("/plain-key/x", headers={"Accept": BROWSER})
    assert (page.status_code, page["Content-Type"].partition(";")[0]) == (404, "text/html")


def test_a_foreign_host_is_refused(client: Client) -> None:
    assert_problem(client.get("/nowhere", headers={"Host": "evil.example"}), 400, "malformed_request")


def test_an_unforeseen_error_is_logged_with_its_traceback_and_request_id(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        body = client.get("/api/bug", headers={"X-Request-Id": "find-me"}).json()
    assert body["request_id"] == "find-me"
    (record,) = [r for r in caplog.records if r.exc_info and r.name == "django.request"]
    assert "secret detail" in str(record.exc_info)


def test_a_head_request_fails_as_its_get_would(client: Client) -> None:
    response = client.head("/api/missing")
    assert response.status_code == 404
    assert response.content == b""


def test_wrong_fields_are_named_by_json_pointer() -> None:
    error = ValidationError(
        {"headers": {"a/b~c": [ErrorDetail("bad")]}, "tags": {"1": ["long"]}, "non_field_errors": ["both"]}
    )
    problem = problem_of(error)
    assert problem is not None
    assert [(e.pointer, e.detail) for e in problem.errors] == [
        ("/headers/a~1b~0c", "bad"),
        ("/tags/1", "long"),
        ("", "both"),
    ]


def test_a_status_that_nobody_knows_still_makes_a_problem() -> None:
    assert (Problem.of_status(499).status, Problem.of_status(599).status) == (400, 500)

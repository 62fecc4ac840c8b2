"""Which format a client asks for."""

from __future__ import annotations

import pytest
from django.test import Client, RequestFactory

from core.negotiation import wants_html

CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8,application/signed-exchange;v=b3"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json", False),
        ("application/json, text/html;q=0.9", False),
        ("text/html;q=0.1, application/json", False),
        ("text/html", True),
        ("TEXT/HTML", True),
        (CHROME, True),
        ("application/problem+json, text/html;q=0.1", False),
        ("text/html;q=0.1, application/problem+json;q=0.2", False),
        ("application/problem+json;q=0.1, text/html", True),
        ("application/vnd.acme.v2+json, text/html;q=0.9", False),
        ("application/hal+json; v=1; q=0.5, text/html;q=0.4", False),
        ("application/vnd.acme+json;q=0, text/html", True),
        ("text/html, application/problem+json", True),
        ("application/ld+xml, text/html;q=0.1", True),
        ("text/html; a*=nope'x'y", False),
        ("text/html," + "a/b," * 10_000, False),
    ],
)
def test_html_is_for_who_names_it(accept: str | None, wanted: bool) -> None:
    headers = {} if accept is None else {"Accept": accept}
    assert wants_html(RequestFactory().get("/", headers=headers)) is wanted


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("accept", "status", "content_type"),
    [
        ("application/json", 200, "application/json"),
        ("application/problem+json", 200, "application/json"),
        ("application/*;q=0.1", 200, "application/json"),
        ("application/json; charset=utf-8", 200, "application/json"),
        ('text/html;charset="UTF-8";q=0.1, application/json ;\tCharset=UTF8 ; q=0.5', 200, "application/json"),
        ("text/html; charset=utf-8", 200, "text/html; charset=utf-8"),
        ("application/json; charset=utf-16", 406, "application/problem+json"),
        ("text/html;q=0.1, application/json", 200, "application/json"),
        (CHROME, 200, "text/html; charset=utf-8"),
        ("application/xml", 406, "application/problem+json"),
        (";;;,,/,q=", 406, "application/problem+json"),
        ("a/b; x*=nope'x'y", 406, "application/problem+json"),
        ("a/b," * 10_000, 200, "application/json"),
    ],
)
def test_the_api_answers_in_what_was_asked_for(api: Client, accept: str, status: int, content_type: str) -> None:
    response = api.get("/api/v1/jobs", headers={"Accept": accept})
    assert (response.status_code, response["Content-Type"]) == (status, content_type)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Content-Type": ""}, "application/json"),
        ({"Content-Type": "text/plain"}, "application/json"),
        ({"Content-Type": "*/*"}, "application/json"),
        ({"Content-Type": "application/vnd.acme+json"}, "application/json"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "application/json"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, "application/json"),
        ({"Content-Type": "application/json; charset=latin-1"}, "UTF-8"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, "Content-Encoding"),
    ],
)
def test_only_plain_json_is_read(api: Client, headers: dict[str, str], said: str) -> None:
    response = api.generic("POST", "/api/v1/jobs", b'{"url": "http://a.example/"}', headers=headers, content_type="")
    assert response.status_code == 415
    assert said in response.json()["detail"]

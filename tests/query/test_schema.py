"""The OpenAPI document: complete, valid, and true of what the service answers."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import jsonschema
import pytest
from django.core.management import call_command
from django.test import Client

from jobs import publisher
from jobs.batches import MAX_JOBS
from jobs.models import Job
from jobs.states import Outcome, State
from tenants.models import Tenant
from tests.factories import make_attempt, make_job

JOBS = "/api/v1/jobs"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """As `manage.py spectacular` writes it: a warning or an error of its validation fails the test."""
    written = io.StringIO()
    call_command("spectacular", validate=True, fail_on_warn=True, format="openapi-json", stdout=written)
    document: dict[str, Any] = json.loads(written.getvalue())
    return document


def check(schema: dict[str, Any], path: str, method: str, answer: Any) -> None:
    """The answer is one that the document foresees, with the type and the shape that it names."""
    responses = schema["paths"][path][method]["responses"]
    content = responses[str(answer.status_code)]["content"][answer["Content-Type"]]
    validator = jsonschema.Draft202012Validator({**content["schema"], "components": schema["components"]})
    validator.validate(answer.json())


def test_it_names_every_call_and_how_to_authenticate(schema: dict[str, Any]) -> None:
    assert schema["openapi"].startswith("3.1")
    calls = {(path, method) for path, methods in schema["paths"].items() for method in methods}
    one = f"{JOBS}/{{job_id}}"
    assert calls >= {
        (JOBS, "get"),
        (JOBS, "post"),
        (one, "get"),
        (f"{one}/attempts", "get"),
        (f"{one}/events", "get"),
        (f"{one}/result", "get"),
        (f"{one}/cancel", "post"),
        (f"{JOBS}/batch", "post"),
        (f"{JOBS}/plan", "post"),
        ("/api/v1/events", "get"),
        ("/api/v1/stats", "get"),
    }
    assert set(schema["components"]["securitySchemes"]) == {"bearerKey", "headerKey", "session"}
    for path, method in calls:
        call = schema["paths"][path][method]
        assert call["security"] == [{"bearerKey": []}, {"headerKey": []}, {"session": []}]
        assert {"400", "401", "403", "406", "503"} <= set(call["responses"])


def test_every_call_is_told_with_examples_and_all_its_errors_are_problems(schema: dict[str, Any]) -> None:
    for path, methods in schema["paths"].items():
        for method, call in methods.items():
            told = f"{method} {path}"
            assert all(call[part] for part in ("summary", "operationId", "tags")), told
            parts = [call["requestBody"]] if "requestBody" in call else []
            parts += [response for status, response in call["responses"].items() if status < "300"]
            bodies = [part["content"] for part in parts if part.get("content")]
            assert all("examples" in body["application/json"] for body in bodies), told
            errors = {status: response for status, response in call["responses"].items() if status >= "400"}
            assert all(set(response["content"]) == {"application/problem+json"} for response in errors.values()), told
            assert all(response["description"] for response in errors.values()), told
            assert ("408" in errors) == ("requestBody" in call), told


def test_every_answer_names_its_headers_and_limits_their_errors(schema: dict[str, Any]) -> None:
    for methods in schema["paths"].values():
        for call in methods.values():
            for status, response in call["responses"].items():
                expected = {"X-Request-Id", "RateLimit", "RateLimit-Policy"}
                expected |= {"Retry-After"} if status in ("429", "503") else set()
                assert expected <= set(response["headers"])
    for path in (JOBS, f"{JOBS}/batch", f"{JOBS}/{{job_id}}/retry"):
        content = schema["paths"][path]["post"]["responses"]["429"]["content"]["application/problem+json"]
        assert set(content["examples"]) == {"SubmitRateExceeded", "TooManyQueued"}
    for path, method in ((JOBS, "post"), (f"{JOBS}/batch", "post"), (f"{JOBS}/{{job_id}}/result", "get")):
        assert "Retry-After" in schema["paths"][path][method]["responses"]["409"]["headers"]
    assert "Retry-After" not in schema["paths"][f"{JOBS}/{{job_id}}/cancel"]["post"]["responses"]["409"]["headers"]


def test_its_examples_fit_its_own_shapes(schema: dict[str, Any]) -> None:
    found = 0
    for methods in schema["paths"].values():
        for call in methods.values():
            for part in [call.get("requestBody", {}), *call["responses"].values()]:
                for content in part.get("content", {}).values():
                    shape = {**content["schema"], "components": schema["components"]}
                    for example in content.get("examples", {}).values():
                        jsonschema.validate(example["value"], shape)
                        found += 1
    assert found > 20


def test_every_body_is_closed_and_bounded(schema: dict[str, Any]) -> None:
    shapes = schema["components"]["schemas"]
    calls = [call for methods in schema["paths"].values() for call in methods.values() if "requestBody" in call]
    for call in calls:
        shape = call["requestBody"]["content"]["application/json"]["schema"]
        if shape.get("type") == "array":
            assert (shape["minItems"], shape["maxItems"]) == (1, MAX_JOBS)
            shape = shape["items"]
        assert shapes[shape["$ref"].rpartition("/")[2]]["additionalProperties"] is False


def test_unknown_fields_do_not_fit_a_submission(schema: dict[str, Any]) -> None:
    shape = {"$ref": "#/components/schemas/JobSubmission", "components": schema["components"]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"url": "http://example.com/", "nope": 1}, shape)


@pytest.fixture
def jobs(tenant: Tenant) -> dict[State, Job]:
    made = {state: make_job(tenant, state=state, tags=["a"]) for state in State}
    make_attempt(
        made[State.SUCCEEDED],
        outcome=Outcome.SUCCEEDED,
        http_status=200,
        timings={"total": 0.1},
        redirects=[{"url": "http://example.com/a", "status": 302}],
        response_headers=[["Content-Type", "text/plain"]],
    )
    make_attempt(made[State.FAILED], error_code="http_404", error_detail="Gone.", http_status=404)
    return made


def test_answers_of_the_read_side_fit(schema: dict[str, Any], client: Client, jobs: dict[State, Job]) -> None:
    check(schema, JOBS, "get", client.get(JOBS))
    check(schema, JOBS, "get", client.get(JOBS, {"limit": 1}))
    check(schema, JOBS, "get", client.get(JOBS, {"limit": 0}))
    for job in jobs.values():
        for call in ("", "/attempts", "/events", "/result"):
            check(schema, f"{JOBS}/{{job_id}}{call}", "get", client.get(f"{JOBS}/{job.id}{call}"))


def test_answers_of_the_command_side_fit(schema: dict[str, Any], client: Client, jobs: dict[State, Job]) -> None:
    documents: list[Any] = [{"url": "http://example.com/"}, {"url": "nope", "x": 1}, []]
    for document in documents:
        check(schema, JOBS, "post", client.post(JOBS, document, content_type="application/json"))
    check(schema, JOBS, "post", client.post(JOBS, "x", content_type="text/plain"))
    for job in jobs.values():
        check(schema, f"{JOBS}/{{job_id}}/cancel", "post", client.post(f"{JOBS}/{job.id}/cancel"))


def test_answers_to_many_jobs_fit(schema: dict[str, Any], client: Client, jobs: dict[State, Job]) -> None:
    publisher.publish_finish_events(100, lambda messages: None)
    for query in ("", "?after=x", "?limit=1"):
        check(schema, "/api/v1/events", "get", client.get(f"/api/v1/events{query}"))
    for query in ("", "?x=1"):
        check(schema, "/api/v1/stats", "get", client.get(f"/api/v1/stats{query}"))
    good, bad = {"url": "http://example.com/"}, {"url": "nope", "x": 1}
    documents: list[Any] = [[good, bad, 7], [], {}, [good] * 3]
    for document in documents:
        check(schema, f"{JOBS}/batch", "post", client.post(f"{JOBS}/batch", document, content_type="application/json"))
    check(schema, f"{JOBS}/batch", "post", client.post(f"{JOBS}/batch", "[", content_type="application/json"))
    check(schema, f"{JOBS}/batch", "post", client.post(f"{JOBS}/batch", "a", content_type="text/plain"))
    for one in (good, bad, good | {"run_at": "2026-12-24T12:00:00Z"}):
        check(schema, f"{JOBS}/plan", "post", client.post(f"{JOBS}/plan", one, content_type="application/json"))


def test_a_batch_is_an_array_or_lines(schema: dict[str, Any]) -> None:
    content = schema["paths"][f"{JOBS}/batch"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "application/x-ndjson", "application/jsonl"}
    assert content["application/json"]["schema"]["type"] == "array"
    assert content["application/x-ndjson"]["schema"] == {"$ref": "#/components/schemas/JobSubmission"}


def test_errors_of_authentication_and_negotiation_fit(schema: dict[str, Any], client: Client) -> None:
    check(schema, JOBS, "get", Client().get(JOBS))
    check(schema, JOBS, "get", client.get(JOBS, headers={"Accept": "image/png"}))


def test_the_schema_and_its_page_are_served_from_here() -> None:
    served = Client().get("/api/v1/schema")
    assert served.status_code == 200
    assert served.json()["openapi"].startswith("3.1")
    page = Client().get("/api/v1/docs", headers={"Accept": "text/html"})
    assert page.status_code == 200
    text = page.content.decode()
    assert "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js" in text
    assert re.findall(r"https?:|[\"'(]//", text) == [], "nothing comes from elsewhere"
    script = Client().get("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js")
    assert script.status_code == 200

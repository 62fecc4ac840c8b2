"""What the API answers of webhooks is what the OpenAPI document says."""

from __future__ import annotations

import io
import json
from typing import Any

import jsonschema
import pytest
from django.core.management import call_command
from django.test import Client

from tenants.models import Tenant
from tests.webhooks.deliveries import announced, ended_job, make_endpoint
from webhooks.models import DeliveryTry

API = "/api/v1"
ENDPOINTS = f"{API}/webhook-endpoints"

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    written = io.StringIO()
    call_command("spectacular", format="openapi-json", stdout=written)
    document: dict[str, Any] = json.loads(written.getvalue())
    return document


def test_every_answer_has_the_shape_that_is_documented(schema: dict[str, Any], api: Client, tenant: Tenant) -> None:
    endpoint, _ = make_endpoint(tenant)
    (delivery,) = announced(ended_job(tenant))
    DeliveryTry.objects.create(delivery=delivery, number=1, at=delivery.created_at, latency_ms=1, status_code=500)

    def check(method: str, path: str, sent: Any = "", **names: object) -> None:
        address = path.format(**names)
        answer: Any = getattr(api, method)(address, *([] if method == "get" else [sent, "application/json"]))
        content = schema["paths"][path][method]["responses"][str(answer.status_code)]["content"]
        shape = content[answer["Content-Type"]]["schema"]
        jsonschema.Draft202012Validator({**shape, "components": schema["components"]}).validate(answer.json())

    one, sent = {"endpoint_id": endpoint.id}, {"delivery_id": delivery.id}
    documents: list[Any] = [{"url": "https://example.com/"}, {"url": 7}, []]
    for document in documents:
        check("post", ENDPOINTS, document)
    check("get", ENDPOINTS)
    check("get", f"{ENDPOINTS}/{{endpoint_id}}", **one)
    check("patch", f"{ENDPOINTS}/{{endpoint_id}}", {"description": "x"}, **one)
    check("post", f"{ENDPOINTS}/{{endpoint_id}}/rotate-secret", **one)
    check("post", f"{ENDPOINTS}/{{endpoint_id}}/replay", {"since": "2026-01-01T00:00:00Z"}, **one)
    check("get", f"{API}/deliveries")
    check("get", f"{API}/deliveries/{{delivery_id}}", **sent)
    check("post", f"{API}/deliveries/{{delivery_id}}/replay", **sent)
    check("get", f"{API}/callback-secret")
    check("post", f"{API}/callback-secret/rotate")

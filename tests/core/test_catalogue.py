"""The `type` of a problem leads to its meaning."""

from __future__ import annotations

from django.test import Client


def test_the_type_of_a_problem_leads_to_its_meaning(client: Client) -> None:
    problem = client.get("/nowhere").json()
    entry = client.get(problem["type"]).json()
    assert entry["code"] == problem["code"]
    assert entry["status"] == 404
    assert entry["title"] == problem["title"]
    assert entry["meaning"]


def test_every_code_is_listed_once_with_a_meaning(client: Client) -> None:
    items = client.get("/problems").json()["items"]
    codes = [item["code"] for item in items]
    assert len(codes) == len(set(codes))
    assert {"malformed_request", "method_not_allowed", "already_final", "internal_error"} <= set(codes)
    assert all(item["meaning"] and 400 <= item["status"] < 600 for item in items)


def test_a_code_that_nothing_has_is_not_found(client: Client) -> None:
    response = client.get("/problems/nothing")
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")

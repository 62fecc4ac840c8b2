"""Addresses of the admin that somebody typed, or cut short: no page, but never a fault of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db.models import UUIDField
from django.test import Client

JUNK = ["%ff", "x", "0", "-1", "a%00b", "9" * 40, "00000000-0000-0000-0000-000000000000", "%F0%9F%92%A9"]


def pages(key: str) -> Iterator[str]:
    """Every page of the admin that has a key in its address or takes one as a parameter."""
    for model in admin.site._registry:
        base = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        yield from (f"{base}{key}/{page}/" for page in ("change", "history", "delete"))
        yield f"{base}{key}/"
        yield from (f"{base}?{name}={key}" for name in ("id__exact", "pk", "q", "p", "o", "tenant__id__exact", "e"))
        yield f"{base}add/?tenant={key}"
        yield f"/admin/r/{ContentType.objects.get_for_model(model).pk}/{key}/"
    yield from (f"/admin/r/{key}/{key}/", f"/admin/auth/user/{key}/password/", f"/admin/{key}/", f"/admin/jsi18n/{key}")


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("key", JUNK)
def test_no_key_is_a_fault_of_ours(admin_client: Client, key: str, accept: str) -> None:
    admin_client.raise_request_exception = False
    answers = {page: admin_client.get(page, headers={"Accept": accept}).status_code for page in pages(key)}
    assert {page: status for page, status in answers.items() if status >= 500} == {}


def test_a_view_on_site_link_with_a_bad_key_is_a_page_that_says_so(admin_client: Client) -> None:
    kind = next(model for model in admin.site._registry if model._meta.app_label == "jobs")
    address = f"/admin/r/{ContentType.objects.get_for_model(kind).pk}/%ff/"
    answer = admin_client.get(address, headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Content-Type"].partition(";")[0]) == (404, "text/html")


def test_an_action_on_keys_that_are_no_uuids_is_no_fault_of_ours(admin_client: Client) -> None:
    admin_client.raise_request_exception = False
    with_uuids = {model: page for model, page in admin.site._registry.items() if isinstance(model._meta.pk, UUIDField)}
    assert with_uuids
    for model, page in with_uuids.items():
        address = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        for action in ("delete_selected", *(str(getattr(act, "__name__", act)) for act in page.actions or ())):
            answer = admin_client.post(address, {"action": action, "_selected_action": ["x", "%ff"]})
            assert answer.status_code < 500, (address, action)

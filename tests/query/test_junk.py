"""Whatever stands in an address or a header, the answer is one that the document foresees, never a 500."""

from __future__ import annotations

from urllib.parse import quote, quote_from_bytes

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.factories import client_of, make_job, make_tenant

JOBS = "/api/v1/jobs"
BOUNDED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = ["status", "host", "tag", "priority", "created_after", "created_before", "limit", "cursor", "schedule", "x"]

encoded = st.text(max_size=20).filter(lambda text: text.isprintable()).map(quote) | st.binary(max_size=12).map(
    quote_from_bytes
)
pair = st.tuples(st.sampled_from(NAMES) | encoded, encoded | st.sampled_from(["queued", "high", "5", "a.example", "é"]))


@pytest.fixture
def caller(db: None) -> Client:
    tenant = make_tenant()
    make_job(tenant)
    return client_of(tenant)


@BOUNDED
@given(pairs=st.lists(pair, max_size=4))
def test_no_query_is_ever_a_500(caller: Client, pairs: list[tuple[str, str]]) -> None:
    answer = caller.get(f"{JOBS}?{'&'.join(f'{name}={value}' for name, value in pairs)}")
    assert answer.status_code in (200, 400), answer.content
    assert answer["Content-Type"] in ("application/json", "application/problem+json")


@BOUNDED
@given(path=encoded, call=st.sampled_from(["", "/attempts", "/events", "/result", "/cancel"]))
def test_no_path_is_ever_a_500(caller: Client, path: str, call: str) -> None:
    answer = caller.get(f"{JOBS}/{path}{call}")
    assert answer.status_code in (404, 405) or path in ("", "."), answer.content


@BOUNDED
@given(key=st.text(st.characters(codec="latin-1"), max_size=300))
def test_no_idempotency_key_is_ever_a_500(caller: Client, key: str) -> None:
    document = {"url": "http://example.com/"}
    answer = caller.post(JOBS, document, content_type="application/json", headers={"Idempotency-Key": key})
    assert answer.status_code in (202, 400), answer.content

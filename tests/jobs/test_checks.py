"""jobs.E001: a lease must outlive three heartbeats."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from jobs.checks import check_lease


@pytest.mark.parametrize(
    ("lease", "heartbeat", "refused"), [(60, 10, False), (31, 10, False), (30, 10, True), (5, 10, True)]
)
def test_a_lease_must_exceed_three_heartbeats(
    settings: Settings, lease: float, heartbeat: float, refused: bool
) -> None:
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS = lease, heartbeat
    assert [message.id for message in check_lease()] == (["jobs.E001"] if refused else [])

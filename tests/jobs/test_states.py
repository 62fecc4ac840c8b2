"""The database refuses exactly what `states.ALLOWED` does not allow."""

from __future__ import annotations

import itertools

import pytest
from django.db import IntegrityError, connection, transaction

from jobs.models import Job, JobEvent
from jobs.states import ALLOWED, FINAL, State
from tests import lifecycle

pytestmark = pytest.mark.django_db

_FIELDS_OF = {
    State.QUEUED: "lease_expires_at = NULL, finished_at = NULL",
    State.RUNNING: "lease_expires_at = now(), claim_no = claim_no + 1, finished_at = NULL",
    State.SUCCEEDED: "lease_expires_at = NULL, finished_at = now(), result_key = 'k', result_bytes = 1",
    State.FAILED: "lease_expires_at = NULL, finished_at = now(), error_code = 'http_404'",
    State.CANCELLED: "lease_expires_at = NULL, finished_at = now()",
}
_WAY_TO = {
    State.QUEUED: [],
    State.RUNNING: [State.RUNNING],
    State.SUCCEEDED: [State.RUNNING, State.SUCCEEDED],
    State.FAILED: [State.RUNNING, State.FAILED],
    State.CANCELLED: [State.CANCELLED],
}


def _move(job: Job, state: State) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobs_job SET state = %s, {_FIELDS_OF[state]} WHERE id = %s", [state, job.id])


@pytest.mark.parametrize(("source", "target"), [p for p in itertools.product(State, State) if p[0] != p[1]])
def test_the_trigger_and_the_table_of_moves_agree(source: State, target: State) -> None:
    job = lifecycle.submit()
    for step in _WAY_TO[source]:
        _move(job, step)
    if target in ALLOWED[source]:
        _move(job, target)
        job.refresh_from_db()
        assert job.state == target
    else:
        with pytest.raises(IntegrityError, match="is not allowed"), transaction.atomic():
            _move(job, target)


def test_claim_no_never_falls() -> None:
    job = lifecycle.submit()
    lifecycle.claim_now(job)
    with pytest.raises(IntegrityError, match="would fall"), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(claim_no=0)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "paused"},
        {"state": State.RUNNING},
        {"state": State.CANCELLED},
        {"lease_expires_at": "2030-01-01T00:00:00Z"},
        {"priority": 4},
        {"max_attempts": 11},
        {"deadline_seconds": 0},
        {"attempts": 6},
    ],
)
def test_rows_that_break_a_rule_are_refused(change: dict[str, object]) -> None:
    job = lifecycle.submit()
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**change)


def test_every_move_leaves_one_event() -> None:
    job = lifecycle.submit()
    claimed = lifecycle.claim_now(job)
    lifecycle.finish(lifecycle.failure(claimed, "http_503", again_after=0.0))
    claimed = lifecycle.claim_now(job)
    lifecycle.finish(lifecycle.success(claimed))
    trail = JobEvent.objects.filter(job=job).values_list("from_state", "to_state", "reason", "attempt")
    assert list(trail) == [
        (None, "queued", "submitted", 0),
        ("queued", "running", "claimed", 1),
        ("running", "queued", "http_503", 1),
        ("queued", "running", "claimed", 2),
        ("running", "succeeded", "succeeded", 2),
    ]


def test_an_event_is_never_changed() -> None:
    job = lifecycle.submit()
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        JobEvent.objects.filter(job=job).update(reason="another")


def test_every_state_is_reachable_and_an_end_is_left_by_a_new_start_alone() -> None:
    reachable = {State.QUEUED}.union(*ALLOWED.values())
    assert reachable == set(State)
    assert {target for state in FINAL for target in ALLOWED[state]} == {State.QUEUED}
    assert ALLOWED[State.SUCCEEDED] == frozenset()

"""The cache in front of one job's answer, on real Redis: what stays of two writes, and for how long."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from django.conf import settings

from jobs.models import Job
from jobs.states import State
from query.answers import JobAnswer
from query.cache import CHANGING_SECONDS, AnswerCache, Keep, Turn, seconds_to_keep
from query.versions import RANK, Version, microseconds

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
TENANT = uuid.uuid4()


@pytest.fixture
def job_id() -> uuid.UUID:
    return uuid.uuid4()


@pytest.fixture
def answers() -> AnswerCache:
    return AnswerCache(settings.REDIS_URL)


def milliseconds_left(job_id: uuid.UUID) -> int:
    with redis.Redis.from_url(settings.REDIS_URL) as link:
        return int(link.pttl(f"job:{job_id}"))


def redis_clock() -> int:
    """In milliseconds."""
    with redis.Redis.from_url(settings.REDIS_URL) as link:
        seconds, microseconds = link.time()
        return int(seconds) * 1000 + int(microseconds) // 1000


def keep(seconds: float = 60.0, *, age: float = 0.0) -> Keep:
    """For an answer that was looked for `age` seconds ago."""
    return Keep(seconds, redis_clock() - int(age * 1000))


def answer(text: str, tenant_id: uuid.UUID = TENANT) -> JobAnswer:
    return JobAnswer.of(tenant_id, {"status": text})


def version(claim_no: int, state: State, *, after: float = 0.0) -> Version:
    """A row read `after` seconds past noon."""
    return Version(claim_no, RANK[state], microseconds(NOW + timedelta(seconds=after)))


def write(answers: AnswerCache, job_id: uuid.UUID, text: str, read: Version) -> bool:
    return answers.remember(answer(text), job_id, read, keep())


def shown(answers: AnswerCache, job_id: uuid.UUID) -> str | None:
    (found,) = answers.recall([str(job_id)])
    return None if found is None else found.body.decode().split('"')[3]


def test_what_is_kept_comes_back_byte_for_byte_with_its_owner_and_etag(answers: AnswerCache, job_id: uuid.UUID) -> None:
    kept = JobAnswer.of(TENANT, {"text": "two\nlines \u00e9"})
    assert answers.remember(kept, job_id, version(1, State.RUNNING), keep())
    assert answers.recall([str(job_id), str(uuid.uuid4())]) == [kept, None]


OLDER_AND_NEWER = [
    (version(1, State.RUNNING, after=9), version(2, State.RUNNING)),
    (version(1, State.SUCCEEDED, after=9), version(2, State.RUNNING)),
    (version(1, State.RUNNING, after=9), version(1, State.QUEUED)),
    (version(1, State.QUEUED, after=9), version(1, State.FAILED)),
    (version(0, State.QUEUED, after=9), version(0, State.CANCELLED)),
    (version(0, State.QUEUED), version(0, State.QUEUED, after=0.000001)),
]


@pytest.mark.parametrize(("older", "newer"), OLDER_AND_NEWER)
def test_of_two_answers_the_newer_stays_whoever_comes_first(
    answers: AnswerCache, job_id: uuid.UUID, older: Version, newer: Version
) -> None:
    assert write(answers, job_id, "older", older)
    assert write(answers, job_id, "newer", newer)
    assert not write(answers, job_id, "older", older)
    assert shown(answers, job_id) == "newer"


def test_what_was_read_before_a_tombstone_is_not_written_after_it(answers: AnswerCache, job_id: uuid.UUID) -> None:
    write(answers, job_id, "running", version(1, State.RUNNING))
    answers.forget(job_id, NOW + timedelta(seconds=1))
    assert shown(answers, job_id) is None
    assert not write(answers, job_id, "running", version(1, State.RUNNING, after=1))
    assert write(answers, job_id, "ended", version(1, State.SUCCEEDED, after=1.1))
    assert shown(answers, job_id) == "ended"


def test_a_new_start_takes_over_although_the_end_ranks_higher(answers: AnswerCache, job_id: uuid.UUID) -> None:
    write(answers, job_id, "failed", version(1, State.FAILED))
    answers.forget(job_id, NOW + timedelta(seconds=1))  # it was retried
    assert write(answers, job_id, "queued", version(1, State.QUEUED, after=2))
    assert not write(answers, job_id, "failed", version(1, State.FAILED, after=0.9)), "the tombstone still counts"
    assert shown(answers, job_id) == "queued"


def test_a_late_tombstone_takes_away_nothing_that_is_newer_and_is_heeded_all_the_same(
    answers: AnswerCache, job_id: uuid.UUID
) -> None:
    write(answers, job_id, "queued", version(1, State.QUEUED, after=2))
    before = milliseconds_left(job_id)
    answers.forget(job_id, NOW + timedelta(seconds=1))
    assert shown(answers, job_id) == "queued"
    assert 0 < milliseconds_left(job_id) <= before
    assert not write(answers, job_id, "failed", version(1, State.FAILED, after=0.5))
    answers.forget(job_id, NOW)  # older still
    assert not write(answers, job_id, "failed", version(1, State.FAILED, after=0.5))


def test_a_tombstone_stays_as_long_as_an_older_answer_can_be_on_its_way(
    answers: AnswerCache, job_id: uuid.UUID
) -> None:
    answers.forget(job_id, NOW)
    assert CHANGING_SECONDS * 1000 < milliseconds_left(job_id) <= 3000


def make(state: State, **values: Any) -> Job:
    return Job(id=uuid.uuid4(), tenant_id=TENANT, state=state, **values)


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.FAILED, State.CANCELLED])
def test_what_may_still_change_is_kept_for_two_seconds(state: State) -> None:
    assert seconds_to_keep(make(state), now=NOW) == CHANGING_SECONDS == 2.0


def test_a_success_is_kept_as_long_as_its_result() -> None:
    job = make(State.SUCCEEDED, result_expires_at=NOW + timedelta(days=3))
    assert seconds_to_keep(job, now=NOW) == 3 * 86_400


def test_time_counts_from_the_look_before_the_read(answers: AnswerCache, job_id: uuid.UUID) -> None:
    read = version(1, State.RUNNING)
    assert not answers.remember(answer("late"), job_id, read, keep(CHANGING_SECONDS, age=CHANGING_SECONDS))
    assert shown(answers, job_id) is None
    assert answers.remember(answer("in time"), job_id, read, keep(CHANGING_SECONDS, age=1.5))
    assert 0 < milliseconds_left(job_id) <= 500


def test_one_reader_makes_the_answer_and_the_others_wait_for_it(answers: AnswerCache, job_id: uuid.UUID) -> None:
    other = AnswerCache(settings.REDIS_URL)
    assert answers.look(TENANT, job_id, "a").found == Turn.MINE
    assert other.look(TENANT, job_id, "b").found == Turn.ANOTHERS
    assert other.look(uuid.uuid4(), job_id, "c").found == Turn.MINE, "another tenant holds up nobody"
    answers.remember(answer("running"), job_id, version(1, State.RUNNING), keep(), "a")
    assert other.look(TENANT, job_id, "b").found == answer("running")


def test_the_turn_of_a_reader_that_found_nothing_or_died_passes_on(answers: AnswerCache, job_id: uuid.UUID) -> None:
    answers.look(TENANT, job_id, "a")
    answers.release(TENANT, job_id, "b")
    assert answers.look(TENANT, job_id, "b").found == Turn.ANOTHERS, "it is not b's to give back"
    answers.release(TENANT, job_id, "a")
    assert answers.look(TENANT, job_id, "b").found == Turn.MINE
    with redis.Redis.from_url(settings.REDIS_URL) as link:
        assert 0 < link.pttl(f"job:{job_id}:reader:{TENANT.hex}") <= 500


def test_a_tombstone_is_nothing_to_read_and_lets_a_reader_in(answers: AnswerCache, job_id: uuid.UUID) -> None:
    answers.forget(job_id, NOW)
    assert answers.look(TENANT, job_id, "a").found == Turn.MINE
    assert answers.recall([str(job_id)]) == [None]


def test_what_another_release_wrote_is_no_answer_and_stands_in_nobodys_way(
    answers: AnswerCache, job_id: uuid.UUID
) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as link:
        link.set(f"job:{job_id}", b"\x80\x05\x95nonsense", px=60_000)
    assert shown(answers, job_id) is None
    assert answers.look(TENANT, job_id, "a").found == Turn.NOBODYS
    assert write(answers, job_id, "running", version(1, State.RUNNING))
    assert shown(answers, job_id) == "running"

"""A short plan of faults on a running pool, and that the verdict would tell if a rule were broken."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.faults import chaos
from tests.faults.load import Wish
from tests.faults.plan import SHORT_PAUSE
from tests.faults.target import Visit
from tests.faults.verify import AttemptRow, Evidence, Findings, Frozen, JobRow, judge_visits

JOB = uuid.UUID(int=1)
SECONDS = 45.0


def test_faults_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    """With Redis as cache and broker in one: its outages and its flushes hit both."""
    verdict = chaos.run(SECONDS, seed=11, rate=8.0, folder=tmp_path, pause=SHORT_PAUSE)
    print(verdict.table())
    assert verdict.findings.broken == {}
    assert verdict.faults >= 8
    assert verdict.accepted > SECONDS * 8 / 2
    assert verdict.refused_unexplained == 0


def judged(visits: list[Visit], *, frozen: list[Frozen] | None = None, **changes: Any) -> Findings:
    """What is made of a job of two attempts, the first lost with its lease at second 14."""
    evidence = Evidence.__new__(Evidence)
    job: dict[str, Any] = {"state": "succeeded", "method": "GET", "retry_unsafe": False, "claim_no": 2, "attempts": 2}
    job |= {"max_attempts": 5, "error_code": "", "result_key": "k", "result_sha256": "", "told": True, "finals": 1}
    evidence.jobs = {JOB: JobRow(id=JOB, **(job | changes))}
    evidence.attempts = {
        JOB: [
            AttemptRow(JOB, 1, "lease_expired", "host:77:abc", 10.0, 14.0),
            AttemptRow(JOB, 2, "succeeded", "host:78:def", 15.0, 17.0),
        ]
    }
    found = Findings()
    wishes = {str(JOB): Wish("j1", 10, {})}
    judge_visits(visits, evidence, wishes, frozen or [], wake_seconds=1.0, found=found)
    return found


def visit(start: float, end: float | None) -> Visit:
    return Visit("j1", "GET", start, end)


def test_two_live_attempts_are_found() -> None:
    assert judged([visit(10.0, 16.0), visit(15.0, 17.0)]).overlapping
    assert judged([visit(10.0, None), visit(15.0, 17.0)]).overlapping
    assert not judged([visit(10.0, 14.9), visit(15.0, 17.0)]).overlapping


def test_a_zombie_may_overlap_from_the_end_of_its_lease_until_it_has_looked_again() -> None:
    frozen = [Frozen(pid=77, begin=9.9, end=15.5)]
    found = judged([visit(10.0, 16.4), visit(15.0, 17.0)], frozen=frozen)
    assert (found.overlapping, found.fenced_overlaps) == ([], 1)
    assert judged([visit(10.0, 16.9), visit(15.0, 17.0)], frozen=frozen).overlapping, "it went on for too long"
    assert judged([visit(10.0, 16.4), visit(13.0, 17.0)], frozen=frozen).overlapping, "its lease had not run out"
    other = [Frozen(pid=78, begin=9.9, end=15.5)]
    assert judged([visit(10.0, 16.4), visit(15.0, 17.0)], frozen=other).overlapping, "it was not stopped"


def test_a_post_that_acts_twice_is_found() -> None:
    twice = [visit(10.0, 11.0), visit(15.0, 17.0)]
    assert judged(twice, method="POST").repeated_posts
    assert not judged(twice, method="POST", retry_unsafe=True).repeated_posts

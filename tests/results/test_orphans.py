"""Objects that no result names go, those that one names stay."""

from __future__ import annotations

import io
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.utils import timezone

from jobs import transitions
from jobs.models import Attempt, Job
from jobs.transitions import ClaimedJob
from results import orphans, tasks
from results.orphans import OrphanSweep
from results.storage import StorageUnavailable, result_key
from tests import lifecycle

pytestmark = pytest.mark.django_db


def upload(claimed: ClaimedJob) -> str:
    key = result_key(claimed.tenant_id, claimed.job_id, claimed.claim_no)
    storages["results"].save(key, ContentFile(io.BytesIO(b"hello").read()))
    return key


def lose(job: Job) -> None:
    """The worker dies, its lease runs out, and enough time passes for nobody to be uploading any more."""
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(hours=1))
    transitions.expire_leases(10)
    long_ago = timezone.now() - timedelta(seconds=orphans.patience_seconds(), hours=1)
    Attempt.objects.filter(job=job).update(finished_at=long_ago)


def test_what_a_lost_worker_left_is_deleted_and_the_later_result_stays() -> None:
    job = lifecycle.submit()
    left = upload(lifecycle.claim_now(job))
    lose(job)
    second = lifecycle.claim_now(job)
    kept = upload(second)
    lifecycle.finish(lifecycle.success(second, result_key=kept))
    assert OrphanSweep().delete_page(10) == 1
    assert not storages["results"].exists(left)
    assert storages["results"].exists(kept)


def test_an_upload_that_comes_to_its_end_after_the_deletion_is_deleted_as_well(settings: Any) -> None:
    """A storage that froze with a whole upload in its buffers stores it when it goes on, whenever that is."""
    settings.LEASE_SECONDS = 0.2
    job, sweep = lifecycle.submit(), OrphanSweep()
    claimed = lifecycle.claim_now(job)
    left = upload(claimed)
    lose(job)
    assert sweep.delete_page(10) == 1
    assert sweep.delete_page(10) == 0
    upload(claimed)
    time.sleep(0.2)
    assert sweep.delete_page(10) == 1
    assert not storages["results"].exists(left)
    assert not Attempt.objects.filter(object_left=True).exists()
    time.sleep(0.2)
    assert sweep.delete_page(10) == 0


def test_a_lost_worker_may_still_be_uploading_for_a_while() -> None:
    job = lifecycle.submit()
    left = upload(lifecycle.claim_now(job))
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(hours=1))
    transitions.expire_leases(10)
    assert OrphanSweep().delete_page(10) == 0
    assert storages["results"].exists(left)


def test_only_attempts_that_may_have_left_something_are_looked_after() -> None:
    clean, unsure = lifecycle.submit(), lifecycle.submit()
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(clean), "http_404"))
    lifecycle.finish(lifecycle.failure(lifecycle.claim_now(unsure), "storage_unavailable", object_left=True))
    Attempt.objects.update(finished_at=timezone.now() - timedelta(days=1))
    assert OrphanSweep().delete_page(10) == 1


def test_a_storage_that_is_down_leaves_the_mark(settings: Any) -> None:
    job = lifecycle.submit()
    lifecycle.claim_now(job)
    lose(job)
    settings.STORAGES = settings.STORAGES | {
        "results": {
            **settings.STORAGES["results"],
            "OPTIONS": {**settings.STORAGES["results"]["OPTIONS"], "endpoint_url": "http://127.0.0.1:9"},
        }
    }
    with pytest.raises(StorageUnavailable):
        OrphanSweep().delete_page(10)
    assert Attempt.objects.get(job=job).object_left


def test_a_second_sweep_leaves_at_once_while_one_waits_for_the_storage() -> None:
    """Both would wait, and the leases of dead workers with them: the role has two threads."""
    job = lifecycle.submit()
    lifecycle.claim_now(job)
    lose(job)
    with tasks._one_at_a_time:
        tasks.sweep_orphans()
    assert Attempt.objects.get(job=job).object_left
    assert not tasks._sweep.deleted_at
    tasks.sweep_orphans()
    assert len(tasks._sweep.deleted_at) == 1

"""What is due, whose try it is, and who may end it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tenants.models import Tenant
from tests.webhooks.deliveries import announced, ended_job, make_endpoint
from webhooks import claims
from webhooks.claims import Claimed, Ended
from webhooks.destinations import DESTINATION_TRIES
from webhooks.models import Delivery, DeliveryTry

pytestmark = pytest.mark.django_db(transaction=True)

WAYS = pytest.mark.parametrize("few", [0, 1000], ids=["walk", "few"])


def due_of(tenant: Tenant, endpoints: int, ends: int) -> list[Delivery]:
    for _ in range(endpoints):
        make_endpoint(tenant)
    return [one for _ in range(ends) for one in announced(ended_job(tenant))]


def take() -> list[Claimed]:
    return claims.claim(claims.look("", []).due)


def delivered(claimed: Claimed) -> Ended:
    return Ended(
        id=claimed.id, claim_no=claimed.claim_no, at=claimed.at, status="delivered", latency_ms=5, status_code=200
    )


@WAYS
def test_destinations_take_turns_however_much_one_has(tenant: Tenant, few: int) -> None:
    due_of(tenant, 1, 30)
    due_of(tenant, 2, 1)
    seen = claims.look("", [], few=few).due
    assert len({one.destination for one in seen[:3]}) == 3
    assert len(seen) == DESTINATION_TRIES + 2


@WAYS
def test_what_is_shut_or_not_yet_due_is_left_out(tenant: Tenant, few: int) -> None:
    first, second, third = due_of(tenant, 3, 1)
    Delivery.objects.filter(pk=second.pk).update(next_try_at=timezone.now() + timedelta(minutes=1))
    assert [one.id for one in claims.look("", [first.destination], few=few).due] == [str(third.id)]


def test_a_long_walk_goes_on_where_it_stopped_and_visits_all(tenant: Tenant) -> None:
    made = due_of(tenant, 7, 1)
    seen: list[str] = []
    after = ""
    for _ in range(4):
        look = claims.look(after, [], few=0, at_most=2)
        seen += [one.id for one in look.due]
        after = look.after
    assert sorted(seen) == sorted(str(one.id) for one in made)
    assert after == ""


def test_many_engines_take_each_delivery_once(tenant: Tenant) -> None:
    due_of(tenant, 8, 5)
    taken: list[Claimed] = []
    start = threading.Barrier(6)

    def race() -> None:
        start.wait()
        taken.extend(take())
        connection.close()

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len({claimed.id for claimed in taken}) == 40


def test_a_claim_that_was_lost_is_taken_by_another_and_its_own_ending_is_dropped(tenant: Tenant) -> None:
    (delivery,) = due_of(tenant, 1, 1)
    (lost,) = take()
    assert take() == []
    Delivery.objects.update(next_try_at=timezone.now() - timedelta(seconds=1))
    (again,) = take()
    assert (again.id, again.claim_no) == (lost.id, lost.claim_no + 1)
    assert claims.record([delivered(lost)]) == set()
    assert Delivery.objects.get().status == "pending"
    assert claims.record([delivered(again)]) == {delivery.id}
    assert claims.record([delivered(again)]) == set()
    assert DeliveryTry.objects.count() == 1


def test_what_is_given_back_is_due_at_once(tenant: Tenant) -> None:
    due_of(tenant, 1, 1)
    (claimed,) = take()
    claims.release([(claimed.id, claimed.claim_no + 1)])
    assert take() == []
    claims.release([(claimed.id, claimed.claim_no)])
    assert [one.claim_no for one in take()] == [claimed.claim_no + 1]

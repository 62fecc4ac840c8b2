"""The delivery engine's rows: what is due, whose try it is, and how it ended. The only writer of a delivery's fate.

Every write that ends a try names its claim; one that matches nothing came too late and is dropped, and the delivery is
tried again, under the same webhook-id.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

from django.db import connection, transaction

from core.encoding import rfc3339
from webhooks.destinations import DESTINATION_TRIES, Due
from webhooks.events import EventType
from webhooks.schedule import GIVE_UP_AFTER

LEASE_SECONDS: Final = 20.0
"""Longer than a try can take, so that two processes send the same one only when something stood still."""
DESTINATIONS_A_PASS: Final = 500
FEW: Final = 1000
"""Up to so many due deliveries are read as they are; more could all be of one destination, and hide the others."""

_FEW: Final = """
SELECT destination, id::text, tenant_id::text FROM webhooks_delivery
WHERE status = 'pending' AND next_try_at <= statement_timestamp() ORDER BY next_try_at, id LIMIT %s
"""

# For when there is much: a loose scan of delivery_destinations, one step a destination; of each with room the oldest
# that are due, in turn.
_DUE: Final = """
WITH RECURSIVE destinations AS (
    (SELECT destination, 1 AS number FROM webhooks_delivery
        WHERE status = 'pending' AND destination > %(after)s ORDER BY destination LIMIT 1)
    UNION ALL
    (SELECT next.destination, d.number + 1 FROM destinations d CROSS JOIN LATERAL (
        SELECT destination FROM webhooks_delivery
        WHERE status = 'pending' AND destination > d.destination ORDER BY destination LIMIT 1) next
    WHERE d.number < %(destinations)s)
)
SELECT d.destination, due.id::text, due.tenant_id::text
FROM destinations d LEFT JOIN LATERAL (
    SELECT id, tenant_id, row_number() OVER (ORDER BY next_try_at, id) AS turn FROM (
        SELECT id, tenant_id, next_try_at FROM webhooks_delivery
        WHERE status = 'pending' AND destination = d.destination AND next_try_at <= statement_timestamp()
        ORDER BY next_try_at, id LIMIT %(each)s) oldest
) due ON d.destination <> ALL(%(shut)s)
ORDER BY due.turn, d.destination
"""

_CLAIM: Final = """
UPDATE webhooks_delivery d
SET claim_no = d.claim_no + 1, claimed_until = now() + %(lease)s * interval '1 second',
    next_try_at = now() + %(lease)s * interval '1 second'
FROM (
    SELECT d.id, e.url, e.disabled_at, e.deleted_at,
        coalesce(e.secret, c.secret) AS secret,
        coalesce(e.previous_secret, c.previous_secret, '') AS previous_secret,
        coalesce(e.previous_expires_at, c.previous_expires_at) AS previous_expires_at
    FROM webhooks_delivery d
    LEFT JOIN webhooks_endpoint e ON e.id = d.endpoint_id
    LEFT JOIN webhooks_callbacksecret c ON d.endpoint_id IS NULL AND c.tenant_id = d.tenant_id
    WHERE d.id = ANY(%(ids)s::uuid[]) AND d.status = 'pending' AND d.next_try_at <= now()
    FOR UPDATE OF d SKIP LOCKED
) mine
WHERE d.id = mine.id
RETURNING d.id, d.claim_no, d.destination, d.tenant_id, d.event_type, d.round_tries, d.body, now(),
    coalesce(nullif(d.url, ''), mine.url), mine.secret, mine.previous_secret, mine.previous_expires_at,
    mine.deleted_at IS NOT NULL, mine.disabled_at IS NOT NULL
"""

_RECORD: Final = """
WITH ended AS (
    SELECT * FROM json_to_recordset(%s) AS e (
        id uuid, claim_no int, at timestamptz, latency_ms int, status_code int, error_code text, error_detail text,
        answer text, status text, delay float8, tried bool, gone bool)
), written AS (
    UPDATE webhooks_delivery d
    SET status = e.status, claimed_until = NULL,
        tries = d.tries + e.tried::int, round_tries = d.round_tries + e.tried::int,
        next_try_at = CASE WHEN e.status = 'pending' THEN now() + e.delay * interval '1 second' END,
        last_status_code = e.status_code, last_error_code = e.error_code, last_error_detail = e.error_detail,
        delivered_at = CASE WHEN e.status = 'delivered' THEN now() ELSE d.delivered_at END
    FROM ended e
    WHERE d.id = e.id AND d.claim_no = e.claim_no AND d.claimed_until IS NOT NULL AND d.status = 'pending'
    RETURNING d.id, d.endpoint_id, d.tries, d.event_type
), kept AS (
    INSERT INTO webhooks_deliverytry
        (delivery_id, number, at, status_code, latency_ms, error_code, error_detail, answer)
    SELECT w.id, w.tries, e.at, e.status_code, e.latency_ms, e.error_code, e.error_detail, e.answer
    FROM written w JOIN ended e USING (id) WHERE e.tried
)
SELECT w.id, w.endpoint_id, w.event_type FROM written w
"""

# Rows are locked in the order of their keys: two processes record tries of the same endpoints.
_JUDGE_ENDPOINTS: Final = """
WITH said AS (
    SELECT * FROM json_to_recordset(%(said)s) AS s (id uuid, well bool, gone bool, detail text)
), changed AS (
    SELECT e.id, s.well, s.gone, s.detail,
        s.gone OR (NOT s.well AND coalesce(e.failing_since <= now() - %(patience)s * interval '1 second', false))
            AS given_up
    FROM webhooks_endpoint e JOIN said s USING (id)
    WHERE (s.well AND e.failing_since IS NOT NULL) OR s.gone
        OR (NOT s.well AND (e.failing_since IS NULL OR e.failing_since <= now() - %(patience)s * interval '1 second'))
    ORDER BY e.id FOR UPDATE OF e
)
UPDATE webhooks_endpoint e
SET failing_since = CASE WHEN c.well THEN NULL ELSE coalesce(e.failing_since, now()) END,
    disabled_at = CASE WHEN c.given_up THEN coalesce(e.disabled_at, now()) ELSE e.disabled_at END,
    disabled_reason = CASE WHEN NOT c.given_up OR e.disabled_at IS NOT NULL THEN e.disabled_reason
        WHEN c.gone THEN 'The endpoint answered with 410 (gone).'
        ELSE format('Every try has failed since %%s. The last one: %%s',
            to_char(e.failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'), c.detail) END
FROM changed c WHERE c.id = e.id
"""

_RELEASE: Final = """
UPDATE webhooks_delivery d SET next_try_at = now(), claimed_until = NULL
FROM json_to_recordset(%s) AS e (id uuid, claim_no int)
WHERE d.id = e.id AND d.claim_no = e.claim_no AND d.claimed_until IS NOT NULL AND d.status = 'pending'
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found due, destinations taking turns; `after` is where the next look begins, empty at the start."""

    due: list[Due]
    after: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is ours to try, with what it takes. `at` is the database's time of the claim."""

    id: uuid.UUID
    claim_no: int
    destination: str
    tenant_id: uuid.UUID
    event_type: str
    round_tries: int
    body: bytes
    at: datetime
    url: str
    secret: str
    previous_secret: str
    previous_expires_at: datetime | None
    endpoint_deleted: bool
    endpoint_disabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a claim ended. `tried` is false for one that was ended without a request; `delay` is in seconds."""

    id: uuid.UUID
    claim_no: int
    at: datetime
    status: str
    latency_ms: int = 0
    status_code: int | None = None
    error_code: str = ""
    error_detail: str = ""
    answer: str = ""
    delay: float = 0.0
    tried: bool = True
    gone: bool = False

    def document(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"id": str(self.id), "at": rfc3339(self.at)}


def look(after: str, shut: Sequence[str], *, few: int = FEW, at_most: int = DESTINATIONS_A_PASS) -> Look:
    """What is due, but of no destination in `shut`: all of it if that is less than `few`, else in the next `at_most`
    destinations behind `after`."""
    with connection.cursor() as cursor:
        cursor.execute(_FEW, [few])
        rows = cursor.fetchall()
    return Look(_in_turn(rows, frozenset(shut)), after="") if len(rows) < few else _walk(after, shut, at_most)


def _in_turn(rows: Sequence[tuple[str, str, str]], shut: frozenset[str]) -> list[Due]:
    """The oldest of each destination, then the second of each, and so on; no more of one than it may have at once."""
    turns: Counter[str] = Counter()
    due: list[tuple[int, Due]] = []
    for destination, row_id, tenant in rows:
        if destination not in shut and turns[destination] < DESTINATION_TRIES:
            turns[destination] += 1
            due.append((turns[destination], Due(id=row_id, destination=destination, tenant=tenant)))
    return [one for _, one in sorted(due, key=itemgetter(0))]


def _walk(after: str, shut: Sequence[str], at_most: int) -> Look:
    terms: dict[str, Any] = {"after": after, "destinations": at_most, "each": DESTINATION_TRIES, "shut": list(shut)}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('jit', 'off', true)")  # half a second of compiling for a statement of one ms
        cursor.execute(_DUE, terms)
        rows = cursor.fetchall()
    seen = {destination for destination, _, _ in rows}
    due = [
        Due(id=row_id, destination=destination, tenant=tenant)
        for destination, row_id, tenant in rows
        if row_id is not None
    ]
    return Look(due, after=max(seen) if len(seen) >= at_most else "")


def claim(due: Sequence[Due]) -> list[Claimed]:
    """Take the tries of those that are still to be had."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"ids": [one.id for one in due], "lease": LEASE_SECONDS})
        return [Claimed(*row) for row in cursor.fetchall()]


def record(group: Sequence[Ended]) -> set[uuid.UUID]:
    """Write how tries ended, with what it says of their endpoints; returns those whose claim still held."""
    by_id = {ended.id: ended for ended in group}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_RECORD, [json.dumps([ended.document() for ended in group])])
        written = cursor.fetchall()
        said = _said(by_id, written)
        if said:
            terms: dict[str, Any] = {"said": json.dumps(said), "patience": GIVE_UP_AFTER.total_seconds()}
            cursor.execute(_JUDGE_ENDPOINTS, terms)
    return {row_id for row_id, _, _ in written}


def _said(ended: dict[uuid.UUID, Ended], written: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """One word an endpoint: it is well if any of its tries went well."""
    words: dict[uuid.UUID, dict[str, Any]] = {}
    for row_id, endpoint_id, event_type in written:
        one = ended[row_id]
        if endpoint_id is None or not one.tried or event_type == EventType.TEST:
            continue
        word = words.setdefault(endpoint_id, {"id": str(endpoint_id), "well": False, "gone": False, "detail": ""})
        word["well"] = word["well"] or not one.error_code
        word["gone"] = word["gone"] or one.gone
        word["detail"] = one.error_detail or word["detail"]
    return list(words.values())


def release(claims: Sequence[tuple[uuid.UUID, int]]) -> None:
    """Give claims back whose tries were cut off: they are due at once."""
    with connection.cursor() as cursor:
        cursor.execute(_RELEASE, [json.dumps([{"id": str(row_id), "claim_no": no} for row_id, no in claims])])

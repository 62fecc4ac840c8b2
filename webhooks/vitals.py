"""How webhooks are right now, for `/metrics` to show and for `doctor` to judge. Every read has a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db import connection, transaction

COUNTED: Final = 10_000
_PATIENCE_MS: Final = 3000

# A try under way is due at the end of its lease, so what is due here waits for an engine, or for its turn.
_READ: Final = """
SELECT
    (SELECT count(*) FROM (SELECT FROM webhooks_delivery WHERE status = 'pending' AND next_try_at <= now()
        ORDER BY next_try_at LIMIT %(counted)s) due),
    (SELECT coalesce(extract(epoch FROM now() - min(next_try_at)), 0)::float8
        FROM webhooks_delivery WHERE status = 'pending' AND next_try_at <= now()),
    (SELECT count(*) FROM (SELECT FROM webhooks_endpoint WHERE deleted_at IS NULL AND failing_since IS NOT NULL
        AND disabled_at IS NULL LIMIT %(counted)s) failing),
    (SELECT count(*) FROM (SELECT FROM webhooks_endpoint WHERE deleted_at IS NULL AND failing_since IS NOT NULL
        AND disabled_at > now() - interval '1 day' LIMIT %(counted)s) disabled),
    (SELECT extract(epoch FROM now() - at)::float8 FROM webhooks_deliverytry ORDER BY id DESC LIMIT 1)
"""


@dataclass(frozen=True, slots=True)
class WebhookVitals:
    """As of one moment; counts stop at COUNTED, ages are seconds."""

    due: int
    oldest_due_age: float
    failing: int  # endpoints that failed last and are not disabled yet
    disabled: int  # given up within a day
    last_try_age: float | None  # None where there was none


def observe() -> WebhookVitals:
    """Read everything. Raises django's database Error; takes a few seconds at most."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(_PATIENCE_MS)])
        cursor.execute(_READ, {"counted": COUNTED})
        return WebhookVitals(*cursor.fetchone())

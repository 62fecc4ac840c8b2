"""What the service stands on, and whether it answers. Apps register a probe of what is theirs in `ready()`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connection
from django_redis import get_redis_connection
from kombu import Connection

PATIENCE_SECONDS = 1.0

logger = logging.getLogger(__name__)

Ask = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """How one part answered; `error` names the kind of failure only, since anyone may read it."""

    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What all probes found."""

    findings: dict[str, Finding]
    essential: frozenset[str]

    @property
    def healthy(self) -> bool:
        """Whether every part answers."""
        return all(finding.error is None for finding in self.findings.values())

    @property
    def usable(self) -> bool:
        """Whether the parts answer without which no call can be served."""
        return all(f.error is None for name, f in self.findings.items() if name in self.essential)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """As `/readyz` shows it; times are milliseconds."""
        return {name: _shown(finding) for name, finding in self.findings.items()}


def _shown(finding: Finding) -> dict[str, Any]:
    ms = round(finding.seconds * 1000, 1)
    return (
        {"status": "ok", "ms": ms} if finding.error is None else {"status": "error", "ms": ms, "error": finding.error}
    )


@dataclass(slots=True)
class Probe:
    """Asks one part in a thread of its own, one question at a time: a part that hangs must not pile up threads."""

    name: str
    ask: Ask
    essential: bool = False
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> Answer:
        """Begin to ask; the answer comes in by itself."""
        answer = Answer(time.monotonic())
        if self._busy.acquire(blocking=False):
            threading.Thread(target=self._run, args=(answer,), name=f"probe-{self.name}", daemon=True).start()
        else:
            answer.give("StillWaiting")
        return answer

    def _run(self, answer: Answer) -> None:
        try:
            self.ask()
        except Exception as error:  # noqa: BLE001  a probe may fail in any way; each way means "does not answer"
            logger.warning("%s does not answer: %s", self.name, error)
            answer.give(type(error).__name__)
        else:
            answer.give(None)
        finally:
            self._busy.release()


class Answer:
    """An answer that may still be on its way."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._arrived = threading.Event()
        self._finding = Finding(0.0)

    def give(self, error: str | None) -> None:
        """Record how the part answered."""
        self._finding = Finding(time.monotonic() - self._started, error)
        self._arrived.set()

    def within(self, seconds: float) -> Finding:
        """The finding, or a timeout where it has not come `seconds` after the question."""
        left = self._started + seconds - time.monotonic()
        return self._finding if self._arrived.wait(max(0.0, left)) else Finding(seconds, "Timeout")


_probes: dict[str, Probe] = {}


def register(name: str, ask: Ask, *, essential: bool = False) -> None:
    """Have `/readyz` call `ask`, which raises when the part does not answer. It should give up by itself."""
    _probes[name] = Probe(name, ask, essential)


def probe_all(patience: float = PATIENCE_SECONDS) -> Report:
    """Ask every registered part at once; takes no longer than `patience` seconds."""
    return ask_all(_probes.values(), patience)


def ask_all(probes: Iterable[Probe], patience: float = PATIENCE_SECONDS) -> Report:
    """Ask `probes` at once and wait at most `patience` seconds for all of them."""
    asked = [(probe, probe.start()) for probe in probes]
    findings = {probe.name: answer.within(patience) for probe, answer in asked}
    return Report(findings, frozenset(probe.name for probe, _ in asked if probe.essential))


def ask_database() -> None:
    """A round trip to PostgreSQL."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        connection.close()  # the thread ends; its connection goes back to the pool


def ask_cache() -> None:
    """A round trip to Redis."""
    get_redis_connection("default").ping()


def ask_broker() -> None:
    """Connect to the broker and open a channel."""
    url: str = settings.CELERY_BROKER_URL
    patience = {} if url.startswith(("amqp", "pyamqp")) else {"socket_timeout": 1, "socket_connect_timeout": 1}
    with Connection(url, connect_timeout=PATIENCE_SECONDS, transport_options=patience) as link:
        link.ensure_connection(max_retries=1, timeout=1)
        link.default_channel  # noqa: B018  opening it is the round trip; `with` closes it

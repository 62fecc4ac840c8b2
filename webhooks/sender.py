"""One try: the request, and what of the answer counts. Connections go through the scraper's egress guard."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from jobs.targets import InvalidTarget, parse_target
from scraper.answers import Answer
from scraper.egress import EgressGuard
from scraper.exchange import Exchange
from scraper.outcomes import FetchFailed
from scraper.redirects import Hop
from scraper.wire import Wire

USER_AGENT: Final = "scraping-jobs-webhooks/1"
TIMEOUT_SECONDS: Final = 15.0
ANSWER_BYTES: Final = 64 * 1024
MAX_RETRY_AFTER: Final = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TryOutcome:
    """How a try went. It went well when `error_code` is empty; `answer` is the beginning of the body, as text."""

    latency_ms: int
    status_code: int | None = None
    error_code: str = ""
    error_detail: str = ""
    answer: str = ""
    retry_after: str | None = None

    @property
    def went_well(self) -> bool:
        return not self.error_code

    @property
    def is_gone(self) -> bool:
        """The receiver wants nothing any more."""
        return self.status_code == HTTPStatus.GONE


@dataclass(slots=True)
class _Heard:
    status_code: int | None = None
    retry_after: str | None = None
    answer: str = ""


class Sender:
    """Posts deliveries; one object per process. `timeout_seconds` bounds a try from the lookup to the last byte."""

    def __init__(
        self,
        egress: EgressGuard,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._exchange = Exchange(
            egress, connect_seconds=timeout_seconds, silence_seconds=timeout_seconds, ssl_context=ssl_context
        )

    async def send(self, url: str, headers: list[tuple[str, str]], body: bytes) -> TryOutcome:
        """Every failure is in the outcome; only asyncio.CancelledError is raised."""
        started = time.perf_counter()
        heard = _Heard()
        code, detail = await self._failure(url, headers, body, heard)
        if heard.status_code is not None:  # what went wrong after the status had come changes nothing
            code, detail = _judged(heard.status_code)
        return TryOutcome(
            latency_ms=round((time.perf_counter() - started) * 1000),
            status_code=heard.status_code,
            error_code=code,
            error_detail=detail,
            answer=heard.answer,
            retry_after=heard.retry_after,
        )

    async def _failure(self, url: str, headers: list[tuple[str, str]], body: bytes, heard: _Heard) -> tuple[str, str]:
        deadline = asyncio.timeout(self._timeout_seconds)
        try:
            async with deadline:
                await self._exchange_once(url, headers, body, heard)
        except InvalidTarget as error:
            return "invalid_request", str(error)
        except FetchFailed as failure:
            return failure.code, failure.detail
        except Exception as error:  # whatever it is, the delivery gets an outcome and its next try
            if isinstance(error, TimeoutError) and deadline.expired():
                return "deadline_exceeded", f"There was no answer within {self._timeout_seconds:g} s."
            logger.exception("a delivery failed in an unknown way")
            return "internal_error", "The try failed for a reason on our side."
        return "", ""

    async def _exchange_once(self, url: str, headers: list[tuple[str, str]], body: bytes, heard: _Heard) -> None:
        fixed = [("User-Agent", USER_AGENT), ("Content-Type", "application/json"), ("Accept-Encoding", "identity")]
        hop = Hop(target=parse_target(url), method="POST", headers=(*fixed, *headers), body=body)
        wire = Wire()
        async with self._exchange.answer(hop, None, wire) as answer:
            heard.status_code = answer.status
            heard.retry_after = _retry_after(answer)
            wire.start_body(ANSWER_BYTES)
            heard.answer = await answer.read_snippet()


def _retry_after(answer: Answer) -> str | None:
    value = answer.first(b"retry-after")
    return value and value[:MAX_RETRY_AFTER]


def _judged(status: int) -> tuple[str, str]:
    if 200 <= status < 300:
        return "", ""
    detail = f"The receiver answered with status {status}."
    if 300 <= status < 400:
        detail += " Redirects are not followed."
    return f"http_{status}", detail

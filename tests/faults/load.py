"""A caller that never stops posting jobs of every sort, and remembers which ones were accepted."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

from tests.faults.target import LOOPBACK

ANSWER_SECONDS: Final = 10.0
PRIORITIES: Final = ("high", "normal", "low")


@dataclass(frozen=True, slots=True)
class Wish:
    """One job to be posted; `job` is its name at the target, `size` the bytes that it is answered with."""

    job: str
    size: int
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A post that got no receipt; status 0 where the connection broke."""

    at: float
    status: int


def wishes(target: str, source: random.Random, *, lease_seconds: float, number: int) -> Wish:
    """The next job: half are quick, a third take up to 2 s, the rest is flaky, missing, a POST or outlasts a lease."""
    job, size = f"j{number:06d}", source.choice((60, 900, 20_000))
    sort = source.random()
    query: dict[str, Any] = {"bytes": size, "seconds": round(source.uniform(0.1, 2.0), 2) if sort < 0.33 else 0}
    document: dict[str, Any] = {"priority": source.choice(PRIORITIES), "tags": [job]}
    if 0.80 <= sort < 0.90:
        query["refusals"] = source.choice((1, 2))
    elif 0.90 <= sort < 0.92:
        query["status"] = 404
    elif 0.92 <= sort < 0.95:
        query["seconds"] = round(source.uniform(0.1, 1.0), 2)
        document |= {"method": "POST", "body": job, "retry_unsafe": source.random() < 0.5}
    elif sort >= 0.95:
        query["seconds"] = round(lease_seconds * 2.5, 2)
    return Wish(job, size, document | {"url": f"http://{target}/{job}?{urlencode(query)}"})


class Load:
    """Posts `rate` jobs a second from a thread of its own until it is left; a context manager."""

    def __init__(self, port: int, key: str, target: str, *, rate: float, seed: int, lease_seconds: float) -> None:
        self.accepted: dict[str, Wish] = {}
        self.receipts: list[float] = []  # when each was had, in Unix seconds
        self.refusals: list[Refusal] = []
        self.slowest = 0.0  # seconds until a receipt
        self._port, self._target, self._rate = port, target, rate
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._source = random.Random(seed)
        self._lease_seconds = lease_seconds
        self._link: http.client.HTTPConnection | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def _run(self) -> None:
        number, due = 0, time.monotonic()
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)  # catches up at most a second
            wish = wishes(self._target, self._source, lease_seconds=self._lease_seconds, number=number)
            self._post(wish)
            number += 1

    def _post(self, wish: Wish) -> None:
        began = time.monotonic()
        try:
            status, answer = self._ask(json.dumps(wish.document))
        except (OSError, http.client.HTTPException):
            self._drop()
            self.refusals.append(Refusal(time.time(), 0))
            return
        if status == 202:
            self.receipts.append(time.time())
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.accepted[json.loads(answer)["id"]] = wish
        else:
            self.refusals.append(Refusal(time.time(), status))

    def _ask(self, body: str) -> tuple[int, bytes]:
        if self._link is None:
            self._link = http.client.HTTPConnection(LOOPBACK, self._port, timeout=ANSWER_SECONDS)
        self._link.request("POST", "/api/v1/jobs", body, self._headers)
        answer = self._link.getresponse()
        return answer.status, answer.read()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(OSError):
                link.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._drop()

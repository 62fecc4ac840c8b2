"""A receiver of webhooks on loopback, in a thread of its own: it checks each signature and notes what came when."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from standardwebhooks import Webhook, WebhookVerificationError

from bench.target import LOOPBACK

_ANSWER: Final = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery that verified; `at` in Unix seconds."""

    webhook_id: str
    job: str
    at: float


class Receiver:
    """Answers after `seconds`. `receipts` are complete, in the order in which they came; `refused` were not signed as
    they should be."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.receipts: list[Receipt] = []
        self.refused = 0
        self.secret = ""
        self._seconds = seconds
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        self.port = 0

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/hook"

    def times_seen(self) -> Counter[str]:
        """How often each webhook-id came."""
        return Counter(receipt.webhook_id for receipt in self.receipts)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._answer, LOOPBACK, 0, backlog=512))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        under_way = asyncio.all_tasks(self._loop)
        for task in under_way:
            task.cancel()
        if under_way:
            self._loop.run_until_complete(asyncio.wait(under_way))
        server.close()
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            self._note(headers, await reader.readexactly(int(headers["content-length"])))
            await asyncio.sleep(self._seconds)
            writer.write(_ANSWER)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # the last one at the end of all
            return
        finally:
            writer.close()

    def _note(self, headers: dict[str, str], body: bytes) -> None:
        try:
            document = Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            self.refused += 1
        else:
            self.receipts.append(Receipt(headers["webhook-id"], document["data"]["id"], time.time()))

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

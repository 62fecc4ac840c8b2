"""The way to the limiter's memory in Redis: a list of steps goes there, is done as one, and its answers come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

SCRIPT: Final = Path(__file__).with_name("politeness.lua").read_text()
ANSWER_SECONDS: Final = 1.0

Step = list[Any]


class LimiterAway(Exception):
    """Redis did not answer. The steps may have been done all the same."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """How far the limiter's memory can be relied on. `seconds` is how long it stays shut at least; `restored` says
    whether it knows what PostgreSQL remembers."""

    name: str
    open: bool
    seconds: float
    restored: bool


class LimiterLink:
    """One connection, for one call at a time, inside one event loop. Every key begins with `prefix`."""

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix = prefix
        # A call that was cut off must not be sent again by itself: its tokens would be taken twice.
        self._redis: Redis = Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._script = self._redis.register_script(SCRIPT)

    async def run(self, steps: Sequence[Step]) -> tuple[Epoch, list[Any]]:
        """The steps' answers, as `politeness.lua` describes them. Raises LimiterAway."""
        try:
            answer = await self._evaluate(json.dumps(steps))
        except (RedisError, OSError, TimeoutError) as error:
            await self.close()  # what is still on its way must not be read as the next answer
            raise LimiterAway(f"{type(error).__name__}: {error}") from error
        (name, is_open, seconds, restored), *values = json.loads(answer)
        return Epoch(name, is_open, seconds, restored), values

    async def close(self) -> None:
        """Drop the connection; the next call makes another."""
        await self._redis.aclose()

    async def _evaluate(self, document: str) -> str:
        try:
            return await self._call("EVALSHA", self._script.sha, document)
        except NoScriptError:  # a server that was started or flushed since
            return await self._call("EVAL", SCRIPT, document)

    async def _call(self, command: str, script: str, document: str) -> str:
        answer: str = await self._redis.execute_command(  # type: ignore[no-untyped-call]
            command, script, 1, self._prefix, document
        )
        return answer

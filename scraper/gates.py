"""What the fetcher asks before each request of an attempt, and tells of each answer."""

from __future__ import annotations

from typing import Protocol


class NotNow(Exception):
    """A host may not be called for longer than the attempt can wait; `reason` as in `waiting_on`, `seconds` until it is
    worth trying again."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(f"{reason}, for {seconds:.1f} s")
        self.reason = reason
        self.seconds = seconds


class Gate(Protocol):
    """One attempt's leave to call hosts, one at a time."""

    async def enter(self, host: str, *, within: float) -> None:
        """Wait until a request may go to `host`, at most `within` seconds; whatever was open to another is closed.

        Raises NotNow.
        """

    def answered(self, status: int, retry_after: str | None) -> None:
        """The host that was entered last answered so; `retry_after` is the raw header. Never waits."""

    def slow_down(self, host: str, seconds: float) -> None:
        """The robots.txt of `host` was read and asks for so many seconds between two requests; 0 for none. Never
        waits."""


class Pass(Gate, Protocol):
    """A gate that an attempt was given with its admission; to be left when the attempt calls nobody any more."""

    def leave(self) -> None:
        """No connection is open any more. Returns at once; safe to repeat."""

    async def settled(self) -> None:
        """Wait until what the answers mean for others is written down."""


class OpenGate:
    """A pass that lets everything through."""

    async def enter(self, host: str, *, within: float) -> None:
        """At once."""

    def answered(self, status: int, retry_after: str | None) -> None:
        """Nothing follows from it."""

    def slow_down(self, host: str, seconds: float) -> None:
        """Nothing follows from it."""

    def leave(self) -> None:
        """Nothing was held."""

    async def settled(self) -> None:
        """Nothing is to be written."""

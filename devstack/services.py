"""What every embedded server has in common."""

from __future__ import annotations

from typing import Protocol

from devstack.supervisor import ChildSpec


class ServiceFailed(Exception):
    """A server could not be set up or did not answer; the message says what to do."""


class Service(Protocol):
    """An embedded server. `prepare` and `is_ready` block, for seconds and for at most about a second."""

    name: str
    port: int

    def prepare(self) -> None:
        """Makes its data folder, whatever an earlier, interrupted attempt left. Raises ServiceFailed."""

    def spec(self, environment: dict[str, str]) -> ChildSpec:
        """How to run it; `environment` is what its process starts from."""

    def is_ready(self) -> bool:
        """Whether it answers now."""

    def settings(self) -> dict[str, str]:
        """The settings by which the service's roles find it."""

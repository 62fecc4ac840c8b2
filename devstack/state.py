"""`dev.json`: what runs now and how to reach it. Written by the supervisor alone, read by everybody."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from devstack.layout import read_json, write_private
from devstack.processes import ProcessRecord


@dataclass
class StackState:
    """The content of dev.json. Names up to `roles` are in the contract; the rest is for ./dev itself."""

    base_url: str = ""
    api_key: str = ""
    tenant: str = ""
    admin_url: str = ""
    admin_user: str = ""
    admin_password: str = ""
    database_url: str = ""
    redis_url: str = ""
    broker_url: str = ""
    s3_endpoint: str = ""
    roles: dict[str, list[int]] = field(default_factory=dict)

    phase: str = "starting"  # starting, ready, unready (roles run but /readyz does not answer 200), stopping
    started_at: str = ""
    stack_id: str = ""
    demo_site: str = ""
    worker_slots: int = 0
    processes: list[ProcessRecord] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)  # settings taken from the user's environment
    environment: dict[str, str] = field(default_factory=dict)  # settings that every role got

    def save(self, path: Path) -> None:
        self.roles = {name: [] for name in self.roles}
        for record in self.processes:
            if record.kind == "role":
                self.roles.setdefault(record.name, []).append(record.pid)
        write_private(path, json.dumps(asdict(self), indent=2))

    @property
    def supervisor(self) -> ProcessRecord | None:
        return next((record for record in self.processes if record.kind == "supervisor"), None)


def load(path: Path) -> StackState | None:
    """The recorded state, which may be of a stack that died; None when there is none or it is unreadable."""
    content: dict[str, Any] = read_json(path)
    try:
        processes = [ProcessRecord(**record) for record in content.pop("processes")]
        return StackState(processes=processes, **content)
    except (KeyError, TypeError):
        return None

"""Single posts a second, against the web role as the Procfile starts it, from clients in processes of their own."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.catalogue import BenchFailed
from bench.children import Children, Process
from bench.console import note
from bench.figures import Figure, percentile
from bench.web import Web
from jobs.models import Job
from tenants.models import ApiKey, Tenant

POSTS_BAR, P99_BAR = 500.0, 200.0  # a second; ms
WARM_UP_SECONDS = 1


@dataclass(slots=True)
class Answers:
    """What all clients saw of one run of `seconds`."""

    seconds: float
    milliseconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """Posts a second, how long they took, and what they cost the web processes."""
    tenant = Tenant.objects.create(name=f"bench-{uuid.uuid4().hex[:12]}")
    _, key = ApiKey.issue(tenant)
    with Children(folder) as children:
        web = Web.start(children)
        _post(children, web.port, key, WARM_UP_SECONDS, sizes)
        stored, spent = Job.objects.count(), web.cpu_seconds()
        answers = _post(children, web.port, key, sizes["seconds"], sizes)
        spent = web.cpu_seconds() - spent
        stored = Job.objects.count() - stored
    posts = len(answers.milliseconds)
    if set(answers.statuses) != {"202"} or stored != posts:
        raise BenchFailed(f"{posts} posts made {stored} rows; the answers were {dict(answers.statuses)}.")
    return [
        Figure("posts a second", posts / answers.seconds, "posts/s", bar=POSTS_BAR, more_is_better=True),
        Figure("answer, p50", percentile(answers.milliseconds, 0.5), "ms"),
        Figure("answer, p99", percentile(answers.milliseconds, 0.99), "ms", bar=P99_BAR),
        Figure("web processes", spent / posts * 1000, "ms CPU/post"),
    ]


def _post(children: Children, port: int, key: str, seconds: int, sizes: Mapping[str, int]) -> Answers:
    note(f"    posting for {seconds} s from {sizes['clients']} processes, {sizes['at_once']} connections each")
    arguments = (str(port), key, str(seconds), str(sizes["at_once"]))
    clients = [children.python("bench.poster", *arguments) for _ in range(sizes["clients"])]
    answers = Answers(seconds)
    for client in clients:
        _add(answers, client)
    return answers


def _add(answers: Answers, client: Process) -> None:
    output, _ = client.communicate(timeout=answers.seconds + 30)
    if client.returncode:
        raise BenchFailed(f"A client ended with {client.returncode}.")
    seen = json.loads(output)
    answers.milliseconds += seen["milliseconds"]
    answers.statuses.update(seen["statuses"])

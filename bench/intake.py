"""Single posts a second, against the web role as the Procfile starts it, from clients in processes of their own."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.catalogue import BenchFailed
from bench.children import Children, Process, cpu_seconds
from bench.console import note
from bench.figures import Figure, percentile
from bench.target import LOOPBACK
from jobs.models import Job
from tenants.models import ApiKey, Tenant

POSTS_BAR, P99_BAR = 500.0, 200.0  # a second; ms
START_SECONDS = 30.0
WARM_UP_SECONDS = 1
WORKERS = 2


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
    port = _free_port()
    with Children(folder) as children:
        web = children.role("web", PORT=str(port), WEB_WORKERS=str(WORKERS))
        children.wait_until(lambda: _is_up(port), seconds=START_SECONDS, what="the web role answers")
        _post(children, port, key, WARM_UP_SECONDS, sizes)
        stored, spent = Job.objects.count(), cpu_seconds(web)
        answers = _post(children, port, key, sizes["seconds"], sizes)
        spent = cpu_seconds(web) - spent
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


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/healthz", timeout=5) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        time.sleep(0.2)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])

"""What a worker process takes in memory: bombs that unpack to 256 MiB, then large bodies in all its slots at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from bench import broker
from bench.backlog import START_SECONDS, UNLIMITED, Backlog
from bench.bucket import client, keys_of
from bench.catalogue import BenchFailed
from bench.children import Children, Process, forget_peak, memory_mib, peak_memory_mib
from bench.figures import Figure
from bench.target import LARGE_PIECE, MIB
from jobs.models import Job

CODINGS = ("gzip", "br", "zstd")
WARM_UP_JOBS = 20
BOMB_LIMIT = 20 * MIB
BOMB_BAR = 64.0
LARGE_BAR = 300.0
SECONDS_PER_MIB = 0.1  # of a large body, before the benchmark is given up


def run(sizes: Mapping[str, int], folder: Path) -> list[Figure]:
    """The worker's peaks; of bombs held against what it had before them. Raises BenchFailed for a wrong outcome."""
    slots, bombs, size = sizes["slots"], sizes["bombs"], sizes["mib"]
    with broker.reserved(os.environ["BROKER_URL"]), Backlog() as backlog, Children(folder) as children:
        target = children.target()
        children.role("publisher", **UNLIMITED)
        limits = {"WORKER_SLOTS": str(slots), "MAX_RESPONSE_BYTES": str((size + 1) * MIB), **UNLIMITED}
        worker = children.role("worker", EGRESS_ALLOW=target, **limits)
        backlog.finish(children, backlog.submit(f"http://{target}/bytes/20480", WARM_UP_JOBS), seconds=START_SECONDS)
        figures = [Figure(f"after {WARM_UP_JOBS} small jobs", memory_mib(worker), "MiB")]
        figures += [_bombs(children, backlog, worker, f"http://{target}/bomb/{coding}", bombs) for coding in CODINGS]
        return [*figures, *_large(children, backlog, worker, f"http://{target}/large/{size}", slots, size)]


def _bombs(children: Children, backlog: Backlog, worker: Process, url: str, count: int) -> Figure:
    forget_peak(worker)
    before = memory_mib(worker)
    ids = backlog.submit(url, count, max_bytes=BOMB_LIMIT)
    backlog.end(children, ids, seconds=START_SECONDS)
    codes = set(Job.objects.filter(id__in=ids).values_list("error_code", flat=True))
    if codes != {"response_too_large"}:
        raise BenchFailed(f"The bombs at {url} ended as {codes}.")
    if left := [key for key in keys_of(f"results/{backlog.tenant.id}/") if any(str(job) in key for job in ids)]:
        raise BenchFailed(f"The bombs at {url} left {len(left)} objects.")
    coding = url.rpartition("/")[2]
    return Figure(f"peak with {count} bombs, {coding}", peak_memory_mib(worker), "MiB", bar=before + BOMB_BAR)


def _large(children: Children, backlog: Backlog, worker: Process, url: str, count: int, size: int) -> list[Figure]:
    forget_peak(worker)
    ids = backlog.submit(url, count, deadline_seconds=300, max_bytes=size * MIB)
    backlog.finish(children, ids, seconds=START_SECONDS + SECONDS_PER_MIB * size * count)
    peak = peak_memory_mib(worker)
    expected = (size * MIB, hashlib.sha256(LARGE_PIECE * size).hexdigest())
    jobs = list(Job.objects.filter(id__in=ids))
    if any((job.result_bytes, job.result_sha256) != expected for job in jobs):
        raise BenchFailed("A large body did not arrive as it was sent.")
    for job in jobs:
        if client().head_object(Bucket=settings.S3_BUCKET, Key=job.result_key)["ContentLength"] != size * MIB:
            raise BenchFailed("A large body was not stored whole.")
    return [
        Figure(f"peak with {count} bodies of {size} MiB at once", peak, "MiB", bar=LARGE_BAR),
        Figure("the same, all of them stored", backlog.seconds(ids), "s"),
    ]

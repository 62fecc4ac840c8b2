"""The tables of the jobs app. `Job` is the state, the outbox and the backlog in one row."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from core.ids import new_id
from jobs.states import FINAL, Outcome, Priority, State
from tenants.models import Tenant


class Method(models.TextChoices):
    """The request methods a job may use."""

    GET = "GET", "GET"
    HEAD = "HEAD", "HEAD"
    POST = "POST", "POST"
    PUT = "PUT", "PUT"
    PATCH = "PATCH", "PATCH"
    DELETE = "DELETE", "DELETE"
    OPTIONS = "OPTIONS", "OPTIONS"


class Job(models.Model):
    """One thing to fetch. `state` is written by `jobs.transitions` alone; the response lies in object storage."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    reason = models.CharField(
        max_length=64, default="submitted", help_text="Why the job last changed state; copied into its events."
    )
    priority = models.PositiveSmallIntegerField(choices=Priority.choices, default=Priority.NORMAL)

    # what to fetch
    url = models.TextField()
    host = models.CharField(max_length=260, help_text="Lower-cased, IDNA, with port: the unit of politeness.")
    method = models.CharField(max_length=7, choices=Method.choices, default=Method.GET)
    headers = models.JSONField(default=dict, blank=True)
    body = models.BinaryField(null=True, blank=True)
    executor = models.CharField(max_length=32, default="http")
    follow_redirects = models.BooleanField(default=True)
    respect_robots = models.BooleanField(
        null=True, blank=True, help_text="Whether robots.txt is heeded; empty: as the tenant's policy says."
    )
    proxy = models.TextField(
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Sealed (core.proxies), shown nowhere; empty: the tenant's. Gone once the job has succeeded.",
    )
    retry_unsafe = models.BooleanField(default=False)
    deadline_seconds = models.PositiveSmallIntegerField()
    max_attempts = models.PositiveSmallIntegerField()
    max_bytes = models.BigIntegerField()
    callback_url = models.TextField(blank=True, default="")
    tags = ArrayField(models.CharField(max_length=64), default=list, blank=True)

    # when
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    run_at = models.DateTimeField(null=True, blank=True, help_text="The caller's wish: not before this time.")
    eligible_at = models.DateTimeField(
        db_default=Now(), help_text="Not published before this time: run_at, then backoff."
    )
    started_at = models.DateTimeField(null=True, blank=True, help_text="Start of the first attempt.")
    finished_at = models.DateTimeField(null=True, blank=True)

    # the outbox
    published_at = models.DateTimeField(
        null=True, blank=True, help_text="A hint, never the truth: empty = to be published."
    )
    finish_published_at = models.DateTimeField(null=True, blank=True)

    # the lease
    claim_no = models.PositiveIntegerField(default=0, help_text="Fencing token: grows with each claim, never reset.")
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="Start of the current or last attempt.")
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=128, blank=True, default="")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Attempts used up.")
    losses = models.PositiveSmallIntegerField(default=0, help_text="Times the job was lost with its worker.")
    cancel_requested_at = models.DateTimeField(null=True, blank=True)

    # the last error
    error_code = models.CharField(max_length=32, blank=True, default="")
    error_detail = models.TextField(blank=True, default="")
    error_http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    error_at = models.DateTimeField(null=True, blank=True)

    # the result
    result_key = models.CharField(max_length=200, blank=True, default="")
    result_bytes = models.BigIntegerField(null=True, blank=True)
    result_content_type = models.CharField(max_length=255, blank=True, default="")
    result_http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    result_sha256 = models.CharField(max_length=64, blank=True, default="")
    result_final_url = models.TextField(blank=True, default="")
    result_expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(state__in=State.values), name="job_state_known"),
            models.CheckConstraint(condition=Q(priority__in=Priority.values), name="job_priority_known"),
            models.CheckConstraint(
                condition=~Q(state=State.RUNNING) | Q(lease_expires_at__isnull=False, claim_no__gte=1),
                name="job_running_has_lease",
            ),
            models.CheckConstraint(
                condition=Q(state=State.RUNNING) | Q(lease_expires_at__isnull=True), name="job_lease_only_while_running"
            ),
            models.CheckConstraint(
                condition=Q(state__in=sorted(FINAL), finished_at__isnull=False)
                | (~Q(state__in=sorted(FINAL)) & Q(finished_at__isnull=True)),
                name="job_final_has_finished_at",
            ),
            models.CheckConstraint(
                condition=~Q(state=State.SUCCEEDED) | (~Q(result_key="") & Q(result_bytes__isnull=False)),
                name="job_succeeded_has_result",
            ),
            models.CheckConstraint(condition=~Q(state=State.FAILED) | ~Q(error_code=""), name="job_failed_has_error"),
            models.CheckConstraint(condition=Q(attempts__lte=F("max_attempts")), name="job_attempts_within_max"),
            models.CheckConstraint(condition=Q(max_attempts__range=(1, 10)), name="job_max_attempts_range"),
            models.CheckConstraint(condition=Q(deadline_seconds__range=(1, 300)), name="job_deadline_range"),
            models.CheckConstraint(condition=Q(max_bytes__gte=1), name="job_max_bytes_positive"),
        ]
        indexes: ClassVar = [
            # reader: dispatcher, the next jobs of a tenant's host; its hosts, and the tenants with work, by their first
            models.Index(
                fields=["priority", "tenant", "host", "eligible_at", "id"],
                name="job_lanes",
                condition=Q(state=State.QUEUED, published_at__isnull=True),
            ),
            # readers: dispatcher (what became due lately, what does next), doctor and /metrics
            models.Index(
                fields=["eligible_at", "id"],
                name="job_backlog",
                condition=Q(state=State.QUEUED, published_at__isnull=True),
            ),
            # readers: dispatcher (what is published and unclaimed), sweeper (messages the broker lost), doctor
            # and /metrics
            models.Index(
                fields=["published_at", "id"],
                name="job_in_window",
                condition=Q(state=State.QUEUED, published_at__isnull=False),
            ),
            # readers: sweeper (leases that ran out), dispatcher (what is running), doctor and /metrics
            models.Index(fields=["lease_expires_at", "id"], name="job_leases", condition=Q(state=State.RUNNING)),
            # reader: publisher, finish events still to be sent
            models.Index(
                fields=["finished_at", "id"],
                name="job_finish_outbox",
                condition=Q(state__in=sorted(FINAL), finish_published_at__isnull=True),
            ),
            # readers: GET /jobs (a tenant's newest first), admin
            models.Index(fields=["tenant", "-id"], name="job_tenant_newest"),
            # readers: dead_letters (newest first), redrive (oldest first, in pages), doctor and /metrics (the last day)
            models.Index(
                fields=["finished_at", "id"],
                name="job_dead_by_age",
                include=["host", "error_code"],
                condition=Q(state=State.FAILED),
            ),
            # readers: dead_letters --host and --group, redrive --host
            models.Index(
                fields=["host", "error_code", "finished_at"],
                name="job_dead_by_cause",
                condition=Q(state=State.FAILED),
            ),
            # readers: GET /jobs?status= of states that are few among many, dead_letters and redrive --tenant
            models.Index(fields=["tenant", "state", "-id"], name="job_tenant_state_newest"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class Attempt(models.Model):
    """What one attempt met: the target's answer, or why there was none. Written once, when the attempt ends."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempt_set", db_index=False)
    claim_no = models.PositiveIntegerField()
    number = models.PositiveSmallIntegerField()
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    error_code = models.CharField(max_length=32, blank=True, default="")
    error_detail = models.TextField(blank=True, default="")
    http_status = models.PositiveSmallIntegerField(null=True)
    worker = models.CharField(max_length=128)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(db_default=Now())
    timings = models.JSONField(default=dict)
    redirects = models.JSONField(default=list)
    response_headers = models.JSONField(default=list)
    evidence = models.JSONField(default=dict)  # of the connection and of the character set; see scraper/evidence.py
    body_snippet = models.TextField(blank=True, default="")
    object_left = models.BooleanField(
        default=False, help_text="An object of this attempt may lie in storage although no result names it."
    )

    class Meta:
        ordering: ClassVar = ["job", "claim_no"]
        indexes: ClassVar = [
            # reader: results.orphans
            models.Index(fields=["finished_at", "id"], name="attempt_object_left", condition=Q(object_left=True)),
        ]
        constraints: ClassVar = [
            # reader: GET /jobs/{id}/attempts; and one claim ends once
            models.UniqueConstraint(fields=["job", "claim_no"], name="attempt_once_per_claim"),
            models.CheckConstraint(condition=Q(outcome__in=Outcome.values), name="attempt_outcome_known"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} #{self.number}"


class JobEvent(models.Model):
    """One change of a job's state. Rows are written by a trigger on the jobs table, in the same transaction, and never
    changed, so the trail is whole whatever wrote the state."""

    seq = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="event_set", db_index=False)
    at = models.DateTimeField(db_default=Now())
    from_state = models.CharField(max_length=10, choices=State.choices, null=True)  # noqa: DJ001  no state before the first
    to_state = models.CharField(max_length=10, choices=State.choices)
    reason = models.CharField(max_length=64)
    attempt = models.PositiveSmallIntegerField()

    class Meta:
        ordering: ClassVar = ["seq"]
        # reader: GET /jobs/{id}/events, admin
        indexes: ClassVar = [models.Index(fields=["job", "seq"], name="event_of_job")]

    def __str__(self) -> str:
        return f"{self.from_state or 'nothing'} -> {self.to_state}"


class FinishEvent(models.Model):
    """One end of one job, numbered in the order in which the publisher told of it: `GET /events` is read by `seq`.

    One process at a time numbers them, so no number is ever committed after a higher one. A job that was retried has
    as many as it has ends.
    """

    seq = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    # without a constraint: jobs are dropped by whole partitions, and what is told of them is of no more use then
    job = models.ForeignKey(Job, on_delete=models.DO_NOTHING, related_name="+", db_index=False, db_constraint=False)
    at = models.DateTimeField(help_text="The end itself; `Job.finished_at` as it was then.")

    class Meta:
        # reader: GET /events
        indexes: ClassVar = [models.Index(fields=["tenant", "seq"], name="finish_event_of_tenant")]

    def __str__(self) -> str:
        return f"{self.seq}: {self.job_id}"


class Tally(models.Model):
    """How many of a tenant's jobs ended in one state, and how many bytes they stored; several rows are added up.

    The publisher adds a job when it tells of its end. A retry takes it off again in a row of its own (`taken_off`), so
    that neither waits for the other.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    state = models.CharField(max_length=10, choices=State.choices)
    priority = models.SmallIntegerField(choices=Priority.choices)
    until = models.DateField(help_text="The day on which the result expires; of a job without one, of its end.")
    taken_off = models.BooleanField(default=False)
    jobs = models.BigIntegerField()
    bytes = models.BigIntegerField()

    class Meta:
        verbose_name_plural = "tallies"
        constraints: ClassVar = [
            # reader: GET /stats
            models.UniqueConstraint(fields=["tenant", "state", "priority", "until", "taken_off"], name="tally_once"),
        ]

    def __str__(self) -> str:
        return f"{self.jobs} {self.state}"


class IdempotencyRecord(models.Model):
    """An Idempotency-Key that was used: the same key and body gets the same receipt again. It made one job, or a
    batch of them."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    call = models.CharField(max_length=64, help_text="The call the key was used with, as `POST /jobs`.")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of the request's body.")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+", db_index=False, null=True)
    job_ids = ArrayField(models.UUIDField(), null=True, help_text="The jobs of a batch, in the order of its rows.")
    rejected = models.JSONField(null=True, help_text="What was told of a batch's other rows, by their index.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "call", "key"], name="idempotency_key_once"),
            models.CheckConstraint(
                condition=Q(job__isnull=False, job_ids__isnull=True, rejected__isnull=True)
                | Q(job__isnull=True, job_ids__isnull=False, rejected__isnull=False),
                name="idempotency_job_or_batch",
            ),
        ]
        indexes: ClassVar = [
            # reader: sweeper, keys past their time
            models.Index(fields=["created_at"], name="idempotency_age"),
        ]

    def __str__(self) -> str:
        return self.key


class WorkerProcess(models.Model):
    """A worker process that is alive or was lately; renewed with each heartbeat. The pool's size is their sum."""

    name = models.CharField(max_length=128, primary_key=True)
    slots = models.PositiveIntegerField()
    running = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "worker processes"

    def __str__(self) -> str:
        return self.name


class Counter(models.Model):
    """A figure that only grows, of what is rare and must outlive the process that met it. `jobs.counters` writes it."""

    name = models.CharField(max_length=64, primary_key=True)
    value = models.PositiveBigIntegerField()

    def __str__(self) -> str:
        return self.name


class HostPolicy(models.Model):
    """What operators decided about one host. An empty limit means the default of the settings."""

    host = models.CharField(
        primary_key=True, max_length=260, help_text="Lower-cased, IDNA, with port: `example.com:443`."
    )
    rate = models.FloatField(null=True, blank=True, help_text="Most requests a second; empty: the default.")
    burst = models.PositiveIntegerField(
        null=True, blank=True, help_text="Requests at once after a rest; empty: the default."
    )
    concurrency = models.PositiveIntegerField(
        null=True, blank=True, help_text="Most connections at once; empty: the default."
    )
    adaptive = models.BooleanField(default=True, help_text="Slow down by itself when the host answers 429 or 503.")
    paused = models.BooleanField(default=False, help_text="Nothing is fetched from the host; its jobs wait.")
    note = models.TextField(blank=True, default="", help_text="Why: for the next operator.")
    changed_by = models.CharField(max_length=150, blank=True, default="", editable=False)
    changed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "host policies"
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(rate__isnull=True) | Q(rate__gt=0), name="host_rate_positive"),
            models.CheckConstraint(condition=Q(burst__isnull=True) | Q(burst__gte=1), name="host_burst_positive"),
            models.CheckConstraint(
                condition=Q(concurrency__isnull=True) | Q(concurrency__gte=1), name="host_concurrency_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.host


class HostState(models.Model):
    """What a host itself has told us, kept here so that it outlives Redis. A host without a row is as it should be."""

    host = models.CharField(primary_key=True, max_length=260)
    blocked_until = models.DateTimeField(null=True, blank=True, help_text="No request before this time (Retry-After).")
    blocked_by = models.CharField(max_length=32, blank=True, default="", help_text="The error code that told so.")
    pace = models.FloatField(default=1.0, help_text="Part of the rate that is used now; 1 is all of it.")
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(pace__gt=0, pace__lte=1), name="host_pace_is_a_part"),
        ]

    def __str__(self) -> str:
        return self.host


class CrawlDelay(models.Model):
    """What a host's robots.txt asks for: so many seconds between two requests. A host that asks for none has no row."""

    host = models.CharField(primary_key=True, max_length=260)
    seconds = models.FloatField()
    read_at = models.DateTimeField(
        db_default=Now(), help_text="Of the file, the last time; a day later it is forgotten."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(seconds__gt=0), name="crawl_delay_positive"),
        ]

    def __str__(self) -> str:
        return self.host


class DispatchReport(models.Model):
    """What the leading publisher knew a moment ago, in one row: why due jobs wait. `jobs.dispatch_report` writes it."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    at = models.DateTimeField(db_default=Now())
    document = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"as of {self.at}"

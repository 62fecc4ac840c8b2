"""Keys that made a batch; the ends of jobs in the order in which they were told, and their tallies."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


FORWARD = """
CREATE FUNCTION jobs_take_off_tally() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- One at a time, so that two that retry many jobs cannot wait for each other's rows.
    PERFORM pg_advisory_xact_lock(7236127719451001);
    INSERT INTO jobs_tally (tenant_id, state, priority, until, taken_off, jobs, bytes)
    VALUES (OLD.tenant_id, OLD.state, OLD.priority, (OLD.finished_at AT TIME ZONE 'UTC')::date, true, -1, 0)
    ON CONFLICT (tenant_id, state, priority, until, taken_off) DO UPDATE SET jobs = jobs_tally.jobs - 1;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_take_off_tally AFTER UPDATE OF state ON jobs_job
    FOR EACH ROW WHEN (OLD.finish_published_at IS NOT NULL AND NEW.state = 'queued' AND OLD.state <> NEW.state)
    EXECUTE FUNCTION jobs_take_off_tally();

INSERT INTO jobs_finishevent (tenant_id, job_id, at)
SELECT tenant_id, id, finished_at FROM jobs_job
WHERE state IN ('succeeded', 'failed', 'cancelled') AND finish_published_at IS NOT NULL ORDER BY finished_at, id;

INSERT INTO jobs_tally (tenant_id, state, priority, until, taken_off, jobs, bytes)
SELECT tenant_id, state, priority,
    (CASE state WHEN 'succeeded' THEN coalesce(result_expires_at, finished_at) ELSE finished_at END
        AT TIME ZONE 'UTC')::date, false,
    count(*), coalesce(sum(result_bytes) FILTER (WHERE state = 'succeeded'), 0)
FROM jobs_job WHERE state IN ('succeeded', 'failed', 'cancelled') AND finish_published_at IS NOT NULL
GROUP BY 1, 2, 3, 4;
"""

BACKWARD = """
DROP TRIGGER jobs_take_off_tally ON jobs_job;
DROP FUNCTION jobs_take_off_tally;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0003_robots_and_proxy"),
        ("tenants", "0002_robots_and_proxy"),
    ]

    operations = [
        migrations.CreateModel(
            name="FinishEvent",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(help_text="The end itself; `Job.finished_at` as it was then.")),
            ],
        ),
        migrations.CreateModel(
            name="Tally",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        max_length=10,
                    ),
                ),
                ("priority", models.SmallIntegerField(choices=[(1, "high"), (2, "normal"), (3, "low")])),
                (
                    "until",
                    models.DateField(
                        help_text="The day on which the result expires; of a job without one, of its end."
                    ),
                ),
                ("taken_off", models.BooleanField(default=False)),
                ("jobs", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
            ],
            options={
                "verbose_name_plural": "tallies",
            },
        ),
        migrations.AddField(
            model_name="idempotencyrecord",
            name="job_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(),
                help_text="The jobs of a batch, in the order of its rows.",
                null=True,
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="idempotencyrecord",
            name="rejected",
            field=models.JSONField(help_text="What was told of a batch's other rows, by their index.", null=True),
        ),
        migrations.AlterField(
            model_name="idempotencyrecord",
            name="job",
            field=models.ForeignKey(
                db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
            ),
        ),
        migrations.AddConstraint(
            model_name="idempotencyrecord",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("job__isnull", False), ("job_ids__isnull", True), ("rejected__isnull", True)),
                    models.Q(("job__isnull", True), ("job_ids__isnull", False), ("rejected__isnull", False)),
                    _connector="OR",
                ),
                name="idempotency_job_or_batch",
            ),
        ),
        migrations.AddField(
            model_name="finishevent",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="jobs.job",
            ),
        ),
        migrations.AddField(
            model_name="finishevent",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="tally",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.tenant"
            ),
        ),
        migrations.AddIndex(
            model_name="finishevent",
            index=models.Index(fields=["tenant", "seq"], name="finish_event_of_tenant"),
        ),
        migrations.AddConstraint(
            model_name="tally",
            constraint=models.UniqueConstraint(
                fields=("tenant", "state", "priority", "until", "taken_off"), name="tally_once"
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]

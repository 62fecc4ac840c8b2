"""Whether a job heeds robots.txt, the proxy it goes through, and the delays that hosts ask for."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0002_state_guard"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="proxy",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Sealed (core.proxies), shown nowhere; empty: the tenant's. Gone once the job has succeeded.",
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="respect_robots",
            field=models.BooleanField(
                blank=True, help_text="Whether robots.txt is heeded; empty: as the tenant's policy says.", null=True
            ),
        ),
        migrations.CreateModel(
            name="CrawlDelay",
            fields=[
                ("host", models.CharField(max_length=260, primary_key=True, serialize=False)),
                ("seconds", models.FloatField()),
                (
                    "read_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Of the file, the last time; a day later it is forgotten.",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("seconds__gt", 0)), name="crawl_delay_positive")
                ],
            },
        ),
    ]

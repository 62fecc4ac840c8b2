"""A tenant's policy on robots.txt, and its proxy."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="proxy",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Sealed (core.proxies), shown nowhere: what jobs without a proxy of their own go through.",
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="respect_robots",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Jobs heed robots.txt, unless one says otherwise itself."
            ),
        ),
    ]

"""The Celery app of every role that consumes or sends messages: `celery -A core.celery worker ...`."""

import os
from typing import Any

from celery import Celery
from celery.signals import beat_init, worker_init

from core.broker import Amqp
from core.checks import refuse_bad_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

app = Celery("scraping_jobs", amqp=Amqp)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_init.connect
@beat_init.connect
def _refuse_bad_settings(**_: Any) -> None:
    """Celery runs Django's checks and throws away what they say."""
    refuse_bad_settings()

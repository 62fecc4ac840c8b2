"""The Celery app of every role that consumes or sends messages: `celery -A core.celery worker ...`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

app = Celery("scraping_jobs")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

"""The service's settings with a Redis that hands out a message again after a moment, if nobody has acknowledged it."""

from settings import *  # noqa: F403

CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 1}

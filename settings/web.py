"""The web role's entry point: `granian --interface rsgi settings.web:application`."""

from django.conf import settings

from core.checks import refuse_bad_settings
from core.gateway import Gateway
from settings.wsgi import application as django

refuse_bad_settings()
application = Gateway(
    django,
    threads=settings.WEB_THREADS,
    body_limit=settings.MAX_REQUEST_BYTES,
    body_seconds=settings.REQUEST_BODY_SECONDS,
)

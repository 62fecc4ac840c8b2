"""The web role's entry point: `granian --interface rsgi settings.web:application`."""

from settings.wsgi import application as django

# isort: split
# Models can be imported only now that the line above has set Django up.
from django.conf import settings

from core.checks import refuse_bad_settings
from core.gateway import Gateway
from query.cache import shared
from query.express import Express
from query.lookups import Lookups
from tenants.known_keys import SHARED

refuse_bad_settings()
application = Gateway(
    django,
    threads=settings.WEB_THREADS,
    read_threads=settings.WEB_READ_THREADS,
    body_limit=settings.MAX_REQUEST_BYTES,
    body_seconds=settings.REQUEST_BODY_SECONDS,
    express=Express(Lookups(shared()), SHARED),
    large_bodies={"/api/v1/jobs/batch": settings.MAX_BATCH_BYTES},
    large_threads=settings.WEB_LARGE_THREADS,
)

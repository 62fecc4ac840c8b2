"""The web role's entry point."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from core.bodies import WholeBodies
from core.checks import refuse_bad_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

_django = get_wsgi_application()
refuse_bad_settings()
application = WholeBodies(_django, limit=settings.MAX_REQUEST_BYTES)

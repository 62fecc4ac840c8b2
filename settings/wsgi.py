"""Django as plain WSGI, for `runserver`; the web role is `settings.web`, which guards it against slow bodies."""

import os

import django

from core.requests import Handler

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

django.setup(set_prefix=False)
application = Handler()

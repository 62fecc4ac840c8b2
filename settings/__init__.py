"""Django settings. What an operator may choose is read in `environment.py`; the rest is fixed here."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import environ
from botocore.config import Config

from settings.environment import read_environment

ENVIRONMENT = read_environment(os.environ)

# --- what the operator chose -------------------------------------------------------------------------------------
DEBUG = ENVIRONMENT.debug
INSECURE_SECRET_KEY = "insecure-default-for-development-only"  # noqa: S105  refused by core.E002 outside DEBUG
SECRET_KEY = ENVIRONMENT.secret_key or INSECURE_SECRET_KEY
PUBLIC_URL = ENVIRONMENT.public_url
ALLOWED_HOSTS = list(ENVIRONMENT.allowed_hosts)
REDIS_URL = ENVIRONMENT.redis_url
WORKER_SLOTS = ENVIRONMENT.worker_slots
LEASE_SECONDS = ENVIRONMENT.lease_seconds
HEARTBEAT_SECONDS = ENVIRONMENT.heartbeat_seconds
SWEEP_SECONDS = ENVIRONMENT.sweep_seconds
JOB_DEADLINE_SECONDS = ENVIRONMENT.job_deadline_seconds
MAX_RESPONSE_BYTES = ENVIRONMENT.max_response_bytes
MAX_ATTEMPTS = ENVIRONMENT.max_attempts
RETRY_BASE_SECONDS = ENVIRONMENT.retry_base_seconds
RETRY_CAP_SECONDS = ENVIRONMENT.retry_cap_seconds
RETENTION_DAYS = ENVIRONMENT.retention_days
RESULT_LINK_SECONDS = ENVIRONMENT.result_link_seconds
PUBLISH_WINDOW = ENVIRONMENT.publish_window
EGRESS_ALLOW = ENVIRONMENT.egress_allow
EGRESS_PORTS = ENVIRONMENT.egress_ports
FETCH_HTTP2 = ENVIRONMENT.fetch_http2
DEFAULT_HOST_RATE = ENVIRONMENT.default_host_rate
DEFAULT_HOST_BURST = ENVIRONMENT.default_host_burst
DEFAULT_HOST_CONCURRENCY = ENVIRONMENT.default_host_concurrency
S3_ENDPOINT_URL = ENVIRONMENT.s3_endpoint_url
S3_PUBLIC_ENDPOINT_URL = ENVIRONMENT.s3_public_endpoint_url or ENVIRONMENT.s3_endpoint_url
S3_BUCKET = ENVIRONMENT.s3_bucket
S3_ACCESS_KEY_ID = ENVIRONMENT.s3_access_key_id
S3_SECRET_ACCESS_KEY = ENVIRONMENT.s3_secret_access_key
S3_REGION = ENVIRONMENT.s3_region

# --- fixed limits of the API --------------------------------------------------------------------------------------
MAX_REQUEST_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 32 * 1024 * 1024  # of a whole batch; each of its jobs keeps to the line above
MAX_JSON_DEPTH = 64
REQUEST_BODY_SECONDS = 30.0  # a body that takes longer to arrive is given up (408)
WEB_THREADS = 8  # requests that may write which one web process answers at once; each may hold a database connection
WEB_READ_THREADS = 6  # the same for those that only read
WEB_LARGE_THREADS = 1  # the same for batches; all three together are fewer than the pool's connections
IDEMPOTENCY_HOURS = 24
SHUTDOWN_GRACE_SECONDS = 10.0  # how long running attempts may go on after SIGTERM before they are released

# --- Django ---------------------------------------------------------------------------------------------------------
ROOT_URLCONF = "settings.urls"
WSGI_APPLICATION = "settings.wsgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
FORMAT_MODULE_PATH = ["settings.formats"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
APPEND_SLASH = False  # a redirect would turn a POST into a GET
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_REQUEST_BYTES

# --- behind a proxy that ends TLS -----------------------------------------------------------------------------------
HTTPS = PUBLIC_URL.startswith("https://")
if PUBLIC_URL:
    ALLOWED_HOSTS.append(urlsplit(PUBLIC_URL).netloc.removesuffix(f":{urlsplit(PUBLIC_URL).port}"))
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL] if PUBLIC_URL else []
# Without it Django takes the proxy's plain HTTP for what the browser speaks, and refuses the origin of every form.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if HTTPS else 0  # sent over HTTPS only
SILENCED_SYSTEM_CHECKS = (
    [
        "security.W008",  # no redirect to HTTPS: the proxy does it, and probes come to the port itself by plain HTTP
        "security.W005",  # no HSTS for subdomains: they are not this service's
        "security.W021",  # no HSTS preload: that list is for the domain's owner to join
    ]
    if HTTPS
    else []
)

INSTALLED_APPS = [
    "core",
    "tenants",
    "jobs",
    "results",
    "scraper",
    "query",
    "webhooks",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]

MIDDLEWARE = [
    "core.middleware.RequestIdMiddleware",
    "tenants.middleware.RateLimitMiddleware",
    "core.compression.CompressionMiddleware",
    "core.middleware.ProblemMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
CSRF_FAILURE_VIEW = "core.views.csrf_failure"
LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/api/v1/jobs"

# --- PostgreSQL -----------------------------------------------------------------------------------------------------
DATABASES: dict[str, dict[str, Any]] = {"default": environ.Env.db_url_config(ENVIRONMENT.database_url)}
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"].get("OPTIONS", {}),
    # After an outage a connection is asked for anew, at once; the pool's own tries would be minutes apart by then.
    "pool": {"min_size": 0, "max_size": 16, "timeout": 5, "reconnect_timeout": 1},
    "connect_timeout": 5,
    # A server that swallows packets would hold a thread until TCP gives up, a quarter of an hour later.
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
    # A transaction left open by a stuck process makes the queue's dead rows pile up; the server ends it.
    "options": "-c idle_in_transaction_session_timeout=30000 -c statement_timeout=30000 -c lock_timeout=10000",
    "application_name": "scraping-jobs",
}
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True  # a pooled connection that a server restart cut is replaced unseen

# --- Redis ----------------------------------------------------------------------------------------------------------
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": ENVIRONMENT.redis_url,
        "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 0.25, "SOCKET_TIMEOUT": 0.25, "IGNORE_EXCEPTIONS": True},
    }
}

# --- object storage and static files --------------------------------------------------------------------------------


def _s3(endpoint: str) -> dict[str, Any]:
    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": S3_BUCKET,
            "endpoint_url": endpoint or None,
            "access_key": S3_ACCESS_KEY_ID or None,
            "secret_key": S3_SECRET_ACCESS_KEY or None,
            "region_name": S3_REGION,
            # A storage that hangs must not hold a slot for botocore's default minute.
            "client_config": Config(
                s3={"addressing_style": "path" if endpoint else "auto"},
                signature_version="s3v4",
                connect_timeout=3,
                read_timeout=30,
                retries={"max_attempts": 2, "mode": "standard"},
            ),
            "querystring_expire": RESULT_LINK_SECONDS,
        },
    }


STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "results": _s3(S3_ENDPOINT_URL),
    # Links are signed for the address that callers reach, which may differ from the one the workers use.
    "result_links": _s3(S3_PUBLIC_ENDPOINT_URL),
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True  # a checkout serves its pages without a collectstatic step, and there is none

# --- REST framework ---------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenants.authentication.ApiKeyAuthentication",
        "tenants.authentication.MemberSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tenants.permissions.HasScope"],
    "DEFAULT_PARSER_CLASSES": ["core.parsers.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": [
        "core.renderers.StrictJSONRenderer",
        "rest_framework.renderers.BrowsableAPIRenderer",
    ],
    "EXCEPTION_HANDLER": "core.problems.problem_handler",
    "DEFAULT_SCHEMA_CLASS": "jobs.schema.ServiceSchema",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "core.negotiation.ProblemNegotiation",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Scraping jobs",
    "DESCRIPTION": "Post a job, get a receipt; the target is fetched and the response kept in object storage.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],  # anyone may read the documentation, with a stale session as well
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "jobs.schema.tell_bounds_of_bodies"],
    # Without names of their own, equal sets of choices get one made of a hash, which changes with the set.
    "ENUM_NAME_OVERRIDES": {
        "StateEnum": "jobs.serializers.STATUSES",
        "PriorityEnum": "jobs.serializers.PRIORITIES",
        "DeliveryStatusEnum": "webhooks.serializers.DELIVERY_STATUSES",
        "WebhookTypeEnum": "webhooks.serializers.EVENT_TYPES",
    },
}

# --- Celery -----------------------------------------------------------------------------------------------------------
CELERY_BROKER_URL = ENVIRONMENT.broker_url
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # a message held without a slot is a job that nobody else can take
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_PUBLISH_RETRY = False  # the publisher has its own loop; a second one inside would hide an outage
CELERY_TIMEZONE = "UTC"
# Without a retry beat never replaces a connection that broke: it would fail at each tick, and nothing would be swept.
BEAT_RETRIES = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.5, "interval_max": 0.5}
CELERY_BEAT_SCHEDULE = {
    task: {
        "task": task,
        "schedule": SWEEP_SECONDS,
        # A sweep that nobody picked up before the next one is due is worth nothing.
        "options": {"queue": "sweeper", "expires": SWEEP_SECONDS, "retry": True, "retry_policy": BEAT_RETRIES},
    }
    for task in ("jobs.sweep", "results.sweep_orphans", "webhooks.sweep")
}

# --- logs -------------------------------------------------------------------------------------------------------------
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "core.request_id.RequestIdFilter"}},
    "formatters": {"line": {"format": "{asctime} {levelname} {name} [{request_id}] {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request_id"]}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django.request": {"level": "ERROR"},  # a caller's mistake is told to the caller
        "celery.worker.strategy": {"level": "WARNING"},  # two lines a message, of which the database knows more
        "celery.app.trace": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        "httpcore2": {"level": "WARNING"},
    },
}

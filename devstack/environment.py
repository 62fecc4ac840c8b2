"""What the processes of a stack find in their environment: the user's own settings first, else the embedded servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from devstack.layout import Layout, Secrets
from devstack.ports import LOOPBACK, Ports, accepts_connections
from devstack.postgres import Postgres
from devstack.processes import STACK_ID
from devstack.redis_server import RedisServer
from devstack.s3 import BUCKET, REGION, S3Server
from devstack.services import Service, ServiceFailed

# Every setting of the service. Those that a user sets win over the stack's; a change of one restarts a running stack.
SETTING_NAMES = (
    "DATABASE_URL",
    "REDIS_URL",
    "BROKER_URL",
    "S3_ENDPOINT_URL",
    "S3_BUCKET",
    "S3_ACCESS_KEY_ID",
    "S3_SECRET_ACCESS_KEY",
    "S3_REGION",
    "S3_PUBLIC_ENDPOINT_URL",
    "SECRET_KEY",
    "PUBLIC_URL",
    "ALLOWED_HOSTS",
    "DEBUG",
    "WORKER_SLOTS",
    "LEASE_SECONDS",
    "HEARTBEAT_SECONDS",
    "SWEEP_SECONDS",
    "JOB_DEADLINE_SECONDS",
    "MAX_RESPONSE_BYTES",
    "MAX_ATTEMPTS",
    "RETRY_BASE_SECONDS",
    "RETRY_CAP_SECONDS",
    "RETENTION_DAYS",
    "RESULT_LINK_SECONDS",
    "PUBLISH_WINDOW",
    "EGRESS_ALLOW",
    "EGRESS_PORTS",
    "FETCH_HTTP2",
    "DEFAULT_HOST_RATE",
    "DEFAULT_HOST_BURST",
    "DEFAULT_HOST_CONCURRENCY",
)
# What the stack sets by itself, for a check of the user's settings that starts no server.
STAND_INS = {
    "S3_BUCKET": BUCKET,
    "S3_REGION": REGION,
    "SECRET_KEY": "x" * 64,
    "ALLOWED_HOSTS": f"{LOOPBACK},localhost",
}
DEFAULT_WORKER_SLOTS = 20
REDIS_DATABASES = 16
S3_KEYS = frozenset({"S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_REGION"})
USUAL_PORTS = {"redis": 6379, "rediss": 6379, "amqp": 5672, "pyamqp": 5672, "amqps": 5671}


@dataclass(frozen=True)
class Plan:
    """The embedded servers that a stack needs, and the settings by which its roles reach everything."""

    services: list[Service]
    settings: dict[str, str]


def chosen_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that the user set; an empty one counts as not set."""
    return {name: environ[name] for name in SETTING_NAMES if environ.get(name, "").strip()}


def check_answers(chosen: Mapping[str, str]) -> None:
    """Tries the real Redis and RabbitMQ that the user named. Raises ServiceFailed when nothing answers there."""
    for name in ("REDIS_URL", "BROKER_URL"):
        parts = urlsplit(chosen.get(name, ""))
        port = parts.port or USUAL_PORTS.get(parts.scheme)
        if parts.hostname and port and not accepts_connections(parts.hostname, port):
            raise ServiceFailed(f"{name} names {parts.hostname}:{port}, where nothing answers.")


def make_plan(layout: Layout, chosen: Mapping[str, str], ports: Ports, *, durable: bool = True) -> Plan:
    """An embedded server for everything that `chosen` does not point elsewhere. `durable` as in Postgres."""
    secrets = Secrets(layout.secrets)
    services: list[Service] = []
    if "DATABASE_URL" not in chosen:
        services.append(Postgres(layout, secrets, ports, durable=durable))
    if "REDIS_URL" not in chosen:
        services.append(RedisServer(layout, secrets, ports))
    if "S3_ENDPOINT_URL" not in chosen:
        services.append(S3Server(layout, secrets, ports, chosen.get("S3_BUCKET", BUCKET)))
    settings = {**STAND_INS, "SECRET_KEY": secrets.random("secret_key", 64)}
    for service in services:
        settings |= service.settings()
    if "REDIS_URL" in chosen:
        settings["BROKER_URL"] = next_database(chosen["REDIS_URL"])
    # Keys that the user has for another storage would lock the roles out of the embedded one.
    foreign = S3_KEYS if "S3_ENDPOINT_URL" not in chosen else frozenset()
    return Plan(services, {**settings, **{name: value for name, value in chosen.items() if name not in foreign}})


def process_environment(environ: Mapping[str, str], settings: Mapping[str, str], stack_id: str) -> dict[str, str]:
    """The whole environment of a process: the user's, the settings, and the scripts of .venv first on PATH."""
    scripts = str(Path(sys.executable).parent)
    own = {
        "PATH": os.pathsep.join([scripts, environ.get("PATH", os.defpath)]),
        "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONUNBUFFERED": "1",
        STACK_ID: stack_id,
    }
    return {**environ, **settings, **own}


def allow_egress_to(settings: Mapping[str, str], address: str) -> dict[str, str]:
    """`settings` with one more `ip:port` that the worker may fetch from."""
    allowed = [part for part in (settings.get("EGRESS_ALLOW", ""), address) if part.strip()]
    return {**settings, "EGRESS_ALLOW": ",".join(allowed)}


def next_database(redis_url: str) -> str:
    """The same Redis server, the database after the one named, so that broker and cache do not mix."""
    parts = urlsplit(redis_url)
    number = parts.path.strip("/")
    following = (int(number) + 1) % REDIS_DATABASES if number.isdigit() else 1
    return urlunsplit(parts._replace(path=f"/{following}"))

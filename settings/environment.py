"""The service's settings, read once from the environment (12-factor), typed, with every problem told at once.

`read_environment` never raises on a bad value: it falls back to the default and lists the problem, so that the system
check `core.E001` can show all of them in one message and every management command still explains itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import SplitResult, urlsplit

from core.egress import BAD_PORTS
from core.networks import read_exemption, read_ports

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Environment:
    """One field per environment variable; the name is the variable's in lower case. Times are seconds, sizes bytes."""

    database_url: str = "postgres://postgres@127.0.0.1:5432/scraping_jobs"
    redis_url: str = "redis://127.0.0.1:6379/0"
    broker_url: str = "redis://127.0.0.1:6379/1"
    s3_endpoint_url: str = ""
    s3_bucket: str = "results"
    s3_access_key_id: str = ""
    s3_secret_access_key: str = ""
    s3_region: str = "us-east-1"
    s3_public_endpoint_url: str = ""
    secret_key: str = ""
    public_url: str = ""
    allowed_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    debug: bool = False
    worker_slots: int = 20
    lease_seconds: float = 60.0
    heartbeat_seconds: float = 10.0
    sweep_seconds: float = 60.0
    job_deadline_seconds: int = 30
    max_response_bytes: int = 50 * MIB
    max_attempts: int = 5
    retry_base_seconds: float = 1.0
    retry_cap_seconds: float = 300.0
    retention_days: float = 30.0
    result_link_seconds: int = 900
    publish_window: int = 0  # 0: twice the slots of the living worker processes
    egress_allow: tuple[str, ...] = ()
    egress_ports: tuple[str, ...] = ()
    fetch_http2: bool = False
    default_host_rate: float = 5.0
    default_host_burst: int = 5
    default_host_concurrency: int = 4
    problems: tuple[str, ...] = field(default=(), metadata={"variable": False})


def _text(raw: str) -> str:
    return raw


def _whole(raw: str) -> int:
    return int(raw.replace("_", "x"))  # int("1_0") is 10 in Python; nobody means that in a settings file


def _number(raw: str) -> float:
    value = float(raw.replace("_", "x"))
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(raw)
    return value


def _flag(raw: str) -> bool:
    return {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}[
        raw.lower()
    ]


def _names(raw: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in raw.split(",") if part.strip())


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "str": (_text, "text"),
    "int": (_whole, "a whole number"),
    "float": (_number, "a number"),
    "bool": (_flag, "one of true, false, 1, 0, yes, no, on, off"),
    "tuple[str, ...]": (_names, "a comma-separated list"),
}

_AT_LEAST: dict[str, float] = {
    "worker_slots": 1,
    "lease_seconds": 1,
    "heartbeat_seconds": 0.1,
    "sweep_seconds": 0.1,
    "job_deadline_seconds": 1,
    "max_response_bytes": 1,
    "max_attempts": 1,
    "retry_base_seconds": 0,
    "retry_cap_seconds": 0,
    "retention_days": 0.001,
    "result_link_seconds": 1,
    "publish_window": 0,
    "default_host_rate": 0.001,
    "default_host_burst": 1,
    "default_host_concurrency": 1,
}
_AT_MOST: dict[str, float] = {
    "job_deadline_seconds": 300,
    "max_attempts": 10,
    "result_link_seconds": 7 * 24 * 3600,  # the longest life S3's signature version 4 allows
}


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Read the settings from `variables` (as `os.environ`); an empty value counts as not set."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for item in fields(Environment):
        name = item.name.upper()
        raw = variables.get(name, "").strip()
        if not raw or item.metadata.get("variable") is False:
            continue
        parse, meaning = _PARSERS[str(item.type)]
        try:
            values[item.name] = parse(raw)
        except (ValueError, KeyError):
            problems.append(f"{name} must be {meaning}, not {raw!r}.")
            continue
        problem = _out_of_range(item.name, values[item.name]) or _bad_url(item.name, values[item.name])
        if problem:
            problems.append(problem)
            del values[item.name]
    for name, wrong in (("egress_allow", _no_network), ("egress_ports", _no_port)):
        found = [f"{name.upper()}: {text}." for text in map(wrong, values.get(name, ())) if text]
        if found:
            problems += found
            del values[name]
    return Environment(**values, problems=tuple(problems))


def _out_of_range(name: str, value: Any) -> str | None:
    if name in _AT_LEAST and value < _AT_LEAST[name]:
        return f"{name.upper()} must be at least {_AT_LEAST[name]:g}, not {value:g}."
    if name in _AT_MOST and value > _AT_MOST[name]:
        return f"{name.upper()} must be at most {_AT_MOST[name]:g}, not {value:g}."
    return None


_SCHEMES: dict[str, tuple[str, ...]] = {
    "database_url": ("postgres", "postgresql"),
    "redis_url": ("redis", "rediss", "unix"),
    "broker_url": ("redis", "rediss", "amqp", "amqps", "pyamqp"),
    "s3_endpoint_url": ("http", "https"),
    "s3_public_endpoint_url": ("http", "https"),
    "public_url": ("http", "https"),
}
# As a browser writes it into `Origin`, or no form would pass; a leading dot or `*` would open it to other hosts.
_ORIGIN = re.compile(r"https?://([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:.]+\])(:[0-9]+)?")
_USUAL_PORTS = {"http": 80, "https": 443}


def _bad_url(name: str, value: Any) -> str | None:
    """What is wrong with an address; never repeats it, since it may hold a password."""
    if name not in _SCHEMES:
        return None
    schemes = " or ".join(f"{scheme}://" for scheme in _SCHEMES[name])
    try:
        parts = urlsplit(value)
        port_is_readable = parts.port is None or parts.port > 0
    except ValueError:
        return f"{name.upper()} is not a URL that can be read; it must start with {schemes}."
    if parts.scheme not in _SCHEMES[name]:
        return f"{name.upper()} must start with {schemes}."
    if not port_is_readable or not _names_a_place(name, parts):
        return f"{name.upper()} names no {'database' if name == 'database_url' else 'host'}."
    if name == "public_url" and (not _ORIGIN.fullmatch(value) or parts.port == _USUAL_PORTS[parts.scheme]):
        return "PUBLIC_URL must be an origin as https://jobs.example: lower case, no path, no user, no usual port."
    return None


def _names_a_place(name: str, parts: SplitResult) -> bool:
    if name == "database_url":  # without a host it is the local socket
        return len(parts.path) > 1
    return bool(parts.path if parts.scheme == "unix" else parts.hostname)


def _no_network(entry: str) -> str | None:
    try:
        read_exemption(entry)
    except ValueError as error:
        return str(error)
    return None


def _no_port(entry: str) -> str | None:
    """A range may pass over ports of other protocols, which stay closed; one that is named alone is a mistake."""
    try:
        ports = read_ports(entry)
    except ValueError as error:
        return str(error)
    return f"{entry!r} is a port of another protocol, and stays closed" if BAD_PORTS.issuperset(ports) else None

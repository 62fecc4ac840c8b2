"""How the environment is read: typed, with every problem told and nothing raised."""

from __future__ import annotations

from dataclasses import fields

import pytest

from settings.environment import Environment, read_environment


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_environment({}) == Environment()
    assert read_environment({"WORKER_SLOTS": "", "DEBUG": " "}) == Environment()


def test_every_setting_can_be_set() -> None:
    given = {
        "DATABASE_URL": "postgresql://u:p@h:5433/d",
        "REDIS_URL": "rediss://h/1",
        "BROKER_URL": "amqp://u:p@h:5672//",
        "S3_ENDPOINT_URL": "http://s3:9000",
        "S3_BUCKET": "b",
        "S3_ACCESS_KEY_ID": "k",
        "S3_SECRET_ACCESS_KEY": "s",
        "S3_REGION": "r",
        "S3_PUBLIC_ENDPOINT_URL": "https://s3.example",
        "SECRET_KEY": "x",
        "PUBLIC_URL": "https://jobs.example",
        "ALLOWED_HOSTS": "a.example, b.example ,",
        "DEBUG": "True",
        "WORKER_SLOTS": "7",
        "LEASE_SECONDS": "3.5",
        "HEARTBEAT_SECONDS": "1",
        "SWEEP_SECONDS": "0.5",
        "JOB_DEADLINE_SECONDS": "300",
        "MAX_RESPONSE_BYTES": "1",
        "MAX_ATTEMPTS": "10",
        "RETRY_BASE_SECONDS": "0",
        "RETRY_CAP_SECONDS": "0",
        "RETENTION_DAYS": "0.5",
        "RESULT_LINK_SECONDS": "604800",
        "PUBLISH_WINDOW": "100",
        "EGRESS_ALLOW": "127.0.0.1:80,10.0.0.0/8",
        "EGRESS_PORTS": "8080,9000-9010",
        "FETCH_HTTP2": "1",
        "DEFAULT_HOST_RATE": "0.5",
        "DEFAULT_HOST_BURST": "1",
        "DEFAULT_HOST_CONCURRENCY": "1",
    }
    names = {field.name.upper() for field in fields(Environment)} - {"PROBLEMS"}
    assert given.keys() == names, "a new setting belongs into this test"
    read = read_environment(given)
    assert read.problems == ()
    assert read.allowed_hosts == ("a.example", "b.example")
    assert read.debug is True
    assert read.lease_seconds == 3.5
    defaults = Environment()
    same = [name for name in names if getattr(read, name.lower()) == getattr(defaults, name.lower())]
    assert same == []


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("WORKER_SLOTS", "many", "a whole number"),
        ("WORKER_SLOTS", "1_0", "a whole number"),
        ("WORKER_SLOTS", "2.5", "a whole number"),
        ("WORKER_SLOTS", "0", "at least 1"),
        ("LEASE_SECONDS", "nan", "a number"),
        ("LEASE_SECONDS", "inf", "a number"),
        ("LEASE_SECONDS", "-1", "at least 1"),
        ("DEBUG", "maybe", "one of true, false"),
        ("MAX_ATTEMPTS", "11", "at most 10"),
        ("JOB_DEADLINE_SECONDS", "301", "at most 300"),
        ("RESULT_LINK_SECONDS", "604801", "at most 604800"),
        ("EGRESS_ALLOW", "127.0.0.1,localhost", "'localhost'"),
        ("EGRESS_ALLOW", "10.1.2.3/8", "'10.1.2.3/8'"),
        ("EGRESS_PORTS", "8080,http", "'http' is neither a port"),
        ("EGRESS_PORTS", "9000-8000", "ends before it begins"),
        ("EGRESS_PORTS", "8080,25", "'25' is a port of another protocol"),
        ("DATABASE_URL", "mysql://u:hidden@h/d", "postgres://"),
        ("DATABASE_URL", "postgres://u:hidden@h", "no database"),
        ("DATABASE_URL", "postgres://u:hidden@h:port/d", "can be read"),
        ("DATABASE_URL", "hidden", "postgres://"),
        ("REDIS_URL", "http://:hidden@h", "redis://"),
        ("REDIS_URL", "redis://", "no host"),
        ("BROKER_URL", "sqs://hidden", "amqp://"),
        ("BROKER_URL", "amqp://[hidden", "can be read"),
        ("S3_ENDPOINT_URL", "s3:hidden", "http://"),
        ("S3_PUBLIC_ENDPOINT_URL", "//hidden", "https://"),
        ("PUBLIC_URL", "jobs.hidden", "https://"),
        ("PUBLIC_URL", "ftp://jobs.hidden", "https://"),
        ("PUBLIC_URL", "https://", "no host"),
        ("PUBLIC_URL", "https://hidden/", "no path"),
        ("PUBLIC_URL", "https://hidden/app", "no path"),
        ("PUBLIC_URL", "https://hidden?a=b", "no path"),
        ("PUBLIC_URL", "https://u:hidden@jobs.test", "no user"),
        ("PUBLIC_URL", "https://HIDDEN", "lower case"),
        ("PUBLIC_URL", "https://hidden:443", "no usual port"),
        ("PUBLIC_URL", "https://hidden:x", "can be read"),
        ("PUBLIC_URL", "https://*.hidden", "an origin"),
        ("PUBLIC_URL", "https://.hidden", "an origin"),
    ],
)
def test_a_bad_value_is_told_and_the_default_stays(name: str, raw: str, said: str) -> None:
    read = read_environment({name: raw})
    (problem,) = read.problems
    assert name in problem
    assert said in problem
    assert "hidden" not in problem
    assert getattr(read, name.lower()) == getattr(Environment(), name.lower())


def test_all_problems_are_told_at_once() -> None:
    assert len(read_environment({"WORKER_SLOTS": "x", "LEASE_SECONDS": "x", "DEBUG": "x"}).problems) == 3


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("DATABASE_URL", "postgres:///d"),
        ("DATABASE_URL", "postgres://u@%2Frun%2Fpostgresql/d"),
        ("REDIS_URL", "unix:///run/redis.sock?db=1"),
        ("BROKER_URL", "pyamqp://h//"),
        ("BROKER_URL", "redis://[::1]:6379/1"),
        ("PUBLIC_URL", "http://127.0.0.1:8000"),
        ("PUBLIC_URL", "https://[::1]:8443"),
    ],
)
def test_addresses_of_every_kind_are_taken(name: str, url: str) -> None:
    read = read_environment({name: url})
    assert read.problems == ()
    assert getattr(read, name.lower()) == url

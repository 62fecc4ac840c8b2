"""Which servers a stack embeds, and what its roles find in their environment."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from devstack.environment import (
    allow_egress_to,
    check_answers,
    chosen_settings,
    make_plan,
    next_database,
    process_environment,
)
from devstack.layout import Layout, Secrets, read_json, write_private
from devstack.ports import Ports, is_free
from devstack.postgres import ensure_database
from devstack.services import ServiceFailed

REAL = {
    "DATABASE_URL": "postgresql://u@db/x",
    "REDIS_URL": "redis://cache:6379/4",
    "S3_ENDPOINT_URL": "https://s3.example",
    "BROKER_URL": "amqp://mq//",
}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "data folder")
    made.create()
    return made


def test_without_settings_everything_is_embedded(layout: Layout) -> None:
    plan = make_plan(layout, {}, Ports(layout.ports))
    assert [service.name for service in plan.services] == ["postgres", "redis", "s3"]
    assert all(
        "127.0.0.1" in plan.settings[name] for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "S3_ENDPOINT_URL")
    )
    assert plan.settings["REDIS_URL"] != plan.settings["BROKER_URL"]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("DATABASE_URL", ["redis", "s3"]),
        ("REDIS_URL", ["postgres", "s3"]),
        ("S3_ENDPOINT_URL", ["postgres", "redis"]),
        ("BROKER_URL", ["postgres", "redis", "s3"]),
    ],
)
def test_each_variable_replaces_its_server(layout: Layout, name: str, left: list[str]) -> None:
    plan = make_plan(layout, {name: REAL[name]}, Ports(layout.ports))
    assert [service.name for service in plan.services] == left
    assert plan.settings[name] == REAL[name]


def test_keys_for_another_storage_do_not_lock_the_roles_out_of_the_embedded_one(layout: Layout) -> None:
    keys = {"S3_ACCESS_KEY_ID": "for another", "S3_SECRET_ACCESS_KEY": "for another", "S3_REGION": "eu-west-1"}
    own = make_plan(layout, {}, Ports(layout.ports)).settings
    assert {name: make_plan(layout, keys, Ports(layout.ports)).settings[name] for name in keys} == {
        name: own[name] for name in keys
    }
    real = keys | {"S3_ENDPOINT_URL": "http://s3:9000"}
    assert make_plan(layout, real, Ports(layout.ports)).settings["S3_ACCESS_KEY_ID"] == "for another"


def test_a_real_redis_is_the_broker_too_in_another_database(layout: Layout) -> None:
    assert make_plan(layout, {"REDIS_URL": REAL["REDIS_URL"]}, Ports(layout.ports)).settings["BROKER_URL"] == (
        "redis://cache:6379/5"
    )
    assert next_database("rediss://:secret@cache/15") == "rediss://:secret@cache/0"
    assert next_database("redis://cache") == "redis://cache/1"


def test_passwords_and_ports_survive_a_restart(layout: Layout) -> None:
    first, second = (make_plan(layout, {}, Ports(layout.ports)).settings for _ in range(2))
    assert first == second
    assert layout.secrets.stat().st_mode & 0o777 == 0o600


def test_two_data_folders_share_neither_ports_nor_passwords(tmp_path: Path) -> None:
    settings = []
    for name in ("one", "two"):
        layout = Layout(tmp_path / name)
        layout.create()
        settings.append(make_plan(layout, {}, Ports(layout.ports)).settings)
    assert settings[0]["SECRET_KEY"] != settings[1]["SECRET_KEY"]
    assert settings[0]["DATABASE_URL"] != settings[1]["DATABASE_URL"]


def test_an_empty_setting_counts_as_not_set() -> None:
    assert chosen_settings({"DATABASE_URL": " ", "DEBUG": "1", "HOME": "/root"}) == {"DEBUG": "1"}


def test_the_demo_site_is_added_to_what_the_user_allows() -> None:
    assert allow_egress_to({}, "127.0.0.1:1")["EGRESS_ALLOW"] == "127.0.0.1:1"
    assert allow_egress_to({"EGRESS_ALLOW": "10.0.0.0/8"}, "127.0.0.1:1")["EGRESS_ALLOW"] == "10.0.0.0/8,127.0.0.1:1"


def test_settings_win_over_the_environment_they_were_read_from() -> None:
    made = process_environment({"PATH": "/bin", "DEBUG": "0", "LANG": "C"}, {"DEBUG": "1"}, "id")
    assert (made["DEBUG"], made["LANG"], made["DEVSTACK_ID"]) == ("1", "C", "id")
    assert made["PATH"].endswith(":/bin")


def test_a_taken_port_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    first = Ports(path).choose("web")
    with_listener = _listen(first)
    try:
        assert not is_free(first)
        assert Ports(path).choose("web", first) != first
    finally:
        with_listener.close()


def test_a_port_asked_for_comes_before_the_remembered_one(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.json")
    remembered, wanted = ports.choose("web"), ports.choose("other")
    assert Ports(tmp_path / "ports.json").choose("web") == remembered
    assert Ports(tmp_path / "ports.json").choose("web", wanted=wanted) == wanted


@pytest.mark.parametrize("name", ["REDIS_URL", "BROKER_URL"])
def test_a_real_server_that_does_not_answer_is_named(name: str) -> None:
    with pytest.raises(ServiceFailed, match=rf"{name} names 127\.0\.0\.1:1, "):
        check_answers({name: "amqp://127.0.0.1:1//"})


@pytest.mark.parametrize("url", ["mysql://127.0.0.1/x", "postgresql://127.0.0.1:1/x", "nonsense"])
def test_a_database_that_cannot_be_used_is_told(url: str) -> None:
    with pytest.raises(ServiceFailed, match="DATABASE_URL cannot be used"):
        ensure_database(url)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"secret_key": 5}'])
def test_a_damaged_file_heals(layout: Layout, content: str) -> None:
    layout.secrets.write_text(content, encoding="utf-8")
    value = Secrets(layout.secrets).random("secret_key", 64)
    assert len(value) == 64
    assert Secrets(layout.secrets).get("secret_key") == value


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o644)
    write_private(path, '{"a": 1}')
    assert (read_json(path), path.stat().st_mode & 0o777) == ({"a": 1}, 0o600)
    assert list(tmp_path.iterdir()) == [path]


def _listen(port: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port))
    listener.listen()
    return listener

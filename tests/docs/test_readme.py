"""README tells the settings and commands that there are."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from devstack.bootstrap import COMMANDS
from devstack.environment import SETTING_NAMES
from settings.environment import Environment
from tests.docs.markdown import ROOT, blocks, section, table_rows

README = (ROOT / "README.md").read_text(encoding="utf-8")
VARIABLES = [field.name for field in fields(Environment) if field.metadata.get("variable", True)]
DEFAULTS = {name.upper(): getattr(Environment(), name) for name in VARIABLES}
TOLD = {row[0].strip("`"): row[1] for row in table_rows(section(README, "Settings"))}


def as_written(value: object) -> str:
    """A default as the table writes it: the text an operator would put into the environment."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_the_table_names_every_setting_and_no_other() -> None:
    assert set(TOLD) == set(DEFAULTS)


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_the_table_tells_the_default(name: str) -> None:
    said = re.match(r"`([^`]*)`", TOLD[name])

    assert (said[1] if said else "") == as_written(DEFAULTS[name])


def test_every_dev_command_told_exists_and_every_command_is_told() -> None:
    assert set(re.findall(r"\./dev ([a-z]+)", README)) == set(COMMANDS)


def test_the_stack_passes_every_setting_on() -> None:
    assert sorted(SETTING_NAMES) == sorted(DEFAULTS)


def test_the_two_commands_come_first() -> None:
    first = blocks(README, "sh")[0]

    assert re.findall(r"^\./dev (\w+)", first, re.MULTILINE) == ["demo", "test"]

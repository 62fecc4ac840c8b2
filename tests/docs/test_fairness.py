"""The page on fairness shows what the simulator prints, and tells every key of a scenario."""

from __future__ import annotations

import re
import shlex

import pytest

from jobs.simulator import reading
from jobs.simulator.reading import InvalidScenario
from tests.commands import manage
from tests.docs.markdown import CODE, ROOT, blocks, section, table_rows

PAGE = (ROOT / "docs" / "fairness.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"<!-- (simulate [^>]+?) -->\n```text\n(.*?)```", PAGE, re.DOTALL)


def known_keys(wrong: str) -> set[str]:
    """The keys that the reader names when it meets an unknown one."""
    with pytest.raises(InvalidScenario) as refused:
        reading.parse(wrong)
    return set(str(refused.value).rpartition("known here: ")[2].split(", "))


def test_there_are_tables_for_every_shipped_scenario() -> None:
    assert {shlex.split(command)[1] for command, _ in SHOWN} == set(reading.shipped_names())


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_figures_are_those_that_the_command_prints(command: str, shown: str) -> None:
    printed = manage(*shlex.split(command)).out.splitlines()

    assert [line for line in shown.splitlines() if line not in printed] == []


def test_the_example_of_a_scenario_can_be_run() -> None:
    (example,) = blocks(section(PAGE, "Writing a scenario"), "toml")

    assert reading.parse(example).title == "Our pool on Monday"


def test_every_key_of_a_scenario_is_told_and_no_other() -> None:
    base = "slots = 1\nduration = 1\nhorizon = 1\n"
    told = {key for row in table_rows(section(PAGE, "Writing a scenario")) for key in CODE.findall(row[0])}
    known = (
        known_keys(f'{base}x = 1\n[[tenants]]\nname = "a"')
        | known_keys(f'{base}[[tenants]]\nname = "a"\nx = 1')
        | known_keys(f'{base}[[tenants]]\nname = "a"\nhosts = ["h"]\n[hosts.h]\nx = 1')
    )

    assert {key.strip("[]").removesuffix('."name"') for key in told} == known

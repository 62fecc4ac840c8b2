"""`manage.py simulate`: what it prints, draws and refuses."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jobs.simulator import reading
from jobs.simulator.picture import draw
from jobs.simulator.reading import InvalidScenario, parse, shipped_names
from tests.commands import assert_refused, manage
from tests.docs.markdown import ROOT
from tests.jobs.simulations import of, run

SVG = "{http://www.w3.org/2000/svg}"
SMALL = 'slots = 2\nduration = 1\nhorizon = 10\n\n[[tenants]]\nname = "one"\nbursts = [{ at = 0, jobs = 4 }]\n'
# The pictures of docs/fairness.md, and the arguments that draw them.
PICTURES = {
    "noisy_neighbour_shared": ("noisy_neighbour", "shared", "weights"),
    "noisy_neighbour_fair": ("noisy_neighbour", "fair", "weights"),
    "priorities_strict": ("priorities", "fair", "strict"),
    "priorities_weights": ("priorities", "fair", "weights"),
    "blocked_host": ("blocked_host", "fair", "weights"),
}


def test_json_holds_what_the_contract_names_and_nothing_else() -> None:
    ended = manage("simulate", "--order", "shared", "--json")

    assert ended.code == 0
    assert ended.err == ""
    assert set(ended.json) == {"tenants", "jain"}
    assert [list(tenant) for tenant in ended.json["tenants"]] == [
        ["name", "submitted", "started", "done", "wait_p50", "wait_p95", "share"]
    ] * 3


def test_without_a_scenario_the_neighbours_are_simulated_in_the_fair_order() -> None:
    assert manage("simulate", "--json").json == manage("simulate", "noisy_neighbour", "--order", "fair", "--json").json


@pytest.mark.parametrize("priorities", ["strict", "weights"])
def test_priorities_have_a_scenario_of_their_own(priorities: str) -> None:
    ended = manage("simulate", "--priorities", priorities, "--json")

    assert ended.json == manage("simulate", "priorities", "--priorities", priorities, "--json").json
    assert (ended.json["tenants"][1]["started"] == 0) == (priorities == "strict")


def test_the_text_says_what_ran_and_what_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")

    ended = manage("simulate", str(tmp_path / "small.toml"))

    assert ended.code == 0
    assert "order fair, priorities weights" in ended.out
    assert "2 slots, 1 s a job, 10 s simulated, seed 1" in ended.out
    assert re.search(r"^one +4 +4 +4 +0\.0 s +0\.0 s +1\.0 s +100\.0%$", ended.out, re.MULTILINE)
    assert "Jain's index: 1.000" in ended.out


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_scenario_can_be_read_and_has_a_title(name: str) -> None:
    assert reading.read(name).title != "A scenario"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slots = 2", "slots = 0", "slots (line 1): must be a whole number from 1 to 10,000, not 0"),
        ("slots = 2", "slots = true", "slots (line 1): must be a whole number"),
        ("slots = 2", "slots = 2.5", "slots (line 1): must be a whole number"),
        ("slots = 2", f"slots = 0x{'f' * 9000}", "slots (line 1): must be a whole number"),
        ("slots = 2\n", "", "slots: is missing"),
        ("slots = 2", "slots = 2\nslot = 3", "slot (line 2): unknown; known here: "),
        ("duration = 1", "duration = inf", "duration (line 2): must be a number"),
        ("duration = 1", "duration = nan", "duration (line 2): must be a number"),
        ("duration = 1", "duration = -1", "duration (line 2): must be a number"),
        ("duration = 1", 'duration = "long"', "duration (line 2): must be a number"),
        ("duration = 1", 'duration = { mean = 1, distribution = "cauchy" }', "duration.distribution (line 2): must"),
        ("duration = 1", "duration = { mean = 1, deviation = 1 }", "duration.deviation (line 2): unknown"),
        ("duration = 1", 'duration = { mean = 1, distribution = "uniform", spread = 2 }', "duration.spread (line 2)"),
        ("horizon = 10", "horizon = 1e9", "horizon (line 3): must be a number"),
        ('name = "one"', 'name = ""', "tenants[1].name (line 6): must be a text"),
        ('name = "one"', 'name = "a\\u0000b"', "tenants[1].name (line 6): must be a text"),
        ('name = "one"\n', "", "tenants[1].name (line 5): is missing"),
        ('name = "one"', 'name = "one"\nweight = 0', "tenants[1].weight (line 7): must be a whole number"),
        ('name = "one"', 'name = "one"\npriority = "urgent"', "(line 7): must be one of high, normal, low, not"),
        ('name = "one"', 'name = "one"\npriority = []', "tenants[1].priority (line 7): must be one of"),
        ('name = "one"', 'name = "one"\nhosts = "a"', "tenants[1].hosts (line 7): must be a list"),
        ("jobs = 4 }", "jobs = 4, of = 3 }", "tenants[1].bursts[1].of (line 7): unknown"),
        ("[{ at = 0, jobs = 4 }]", "[3]", "tenants[1].bursts[1] (line 7): must be a table"),
        ("[{ at = 0, jobs = 4 }]", "[{}]", "tenants[1].bursts[1].jobs (line 7): is missing"),
        ("jobs = 4 }", "jobs = 1000000 }, { jobs = 1 }", "at most 1,000,000 are simulated"),
        ("[[tenants]]", "[tenants]", "tenants (line 5): must be a list"),
        (SMALL[SMALL.index("[[") :], "", "tenants: there must be one at least"),
        (SMALL[-1], "\n[[tenants]]\nname = 'one'\n", "tenants[2].name"),
        (SMALL[-1], "\n[hosts.nobody]\nrate = 1\n", "hosts.nobody (line 8): no tenant's hosts name it"),
        (SMALL[-1], "\nhosts = ['a b']\n[hosts.'a b']\nrate = 0\n", "hosts.a b.rate (line 10): must be a number"),
        (SMALL[-1], "\nhosts = ['a']\n[hosts.a]\nblocked = [[3, 2]]\n", "hosts.a.blocked[1] (line 10): ends before"),
        (SMALL[-1], "\nhosts = ['a']\n[hosts.a]\nblocked = [3, 2]\n", "(line 10): must be [from, until]"),
        ("slots = 2", "slots = = 2", "not TOML: Invalid value (at line 1"),
        ("slots = 2", f"slots = {'[' * 100_000}", "nested too deeply"),
        ("slots = 2", f"slots = {'1' * 5000}", "not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_scenario_is_refused_with_the_key_and_the_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    at = SMALL.rindex(old)
    (tmp_path / "wrong.toml").write_text(SMALL[:at] + new + SMALL[at + len(old) :], encoding="utf-8")

    assert_refused(manage("simulate", str(tmp_path / "wrong.toml")), said)


def test_the_line_of_a_later_tenants_key_is_its_own() -> None:
    text = SMALL + "[[tenants]]\nname = 'two'\n[[tenants.bursts]]\njobs = 1\n[[tenants.bursts]]\njobs = 0\n"

    with pytest.raises(InvalidScenario, match=r"^tenants\[2\]\.bursts\[2\]\.jobs \(line 13\)"):
        parse(text)


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'title = "\xff"')
    (tmp_path / "big.toml").write_text("#" * (reading.MOST_BYTES + 1), encoding="utf-8")

    assert_refused(manage("simulate", str(tmp_path / "none.toml")), "is no file, nor one of the scenarios")
    assert_refused(manage("simulate", str(tmp_path)), "is no file")
    assert_refused(manage("simulate", "/dev/zero"), "is no file")
    assert_refused(manage("simulate", "a\0b"), "is no ")
    assert_refused(manage("simulate", "x" * 5000), "x")
    assert_refused(manage("simulate", str(tmp_path / "latin.toml")), "is not UTF-8")
    assert_refused(manage("simulate", str(tmp_path / "big.toml")), "is larger than")


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    assert_refused(manage("simulate", "--order", "random"), "invalid choice")
    assert_refused(manage("simulate", "--priorities", "none"), "invalid choice")
    assert_refused(manage("simulate", "--picture", str(tmp_path / "run.png")), "does not end in .svg")
    assert_refused(manage("simulate", "--picture", str(tmp_path / "no" / "run.svg")), "cannot be written")


def test_help_shows_an_example() -> None:
    ended = manage("simulate", "--help")

    assert ended.code == 0
    assert "python manage.py simulate --order shared --picture shared.svg" in ended.out


@pytest.mark.parametrize("name", shipped_names())
@pytest.mark.parametrize("order", ["fair", "shared"])
def test_a_picture_is_well_formed_and_shows_every_tenant_by_name_and_colour(name: str, order: str) -> None:
    outcome = run(name, order)
    root = ElementTree.fromstring(draw(outcome, order, "weights"))  # noqa: S314 (our own text)

    words = [element.text or "" for element in root.iter(f"{SVG}text")]
    for tenant in outcome.scenario.tenants:
        assert any(word.startswith(f"{tenant.name} (") for word in words)
    colours = {element.get("fill") for element in root.iter(f"{SVG}path")}
    assert len(colours) == len(list(root.iter(f"{SVG}polyline"))) == len(outcome.scenario.tenants)


def test_a_picture_holds_any_name_and_number_of_tenants() -> None:
    tenants = "".join(f"[[tenants]]\nname = '<&\"{index}>'\nflow = 1\n" for index in range(60))
    outcome = of(f"title = '<b>&'\nslots = 100\nduration = 3\nhorizon = 0.7\n{tenants}")
    root = ElementTree.fromstring(draw(outcome, "fair", "weights"))  # noqa: S314 (our own text)

    right = [float(element.get("x", "0")) for element in root.iter(f"{SVG}text")]
    assert max(right) < 960
    assert sum('<&"' in (element.text or "") for element in root.iter(f"{SVG}text")) == 60


def test_a_picture_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    ended = manage("simulate", "--json", "--picture", str(tmp_path / "run.SVG"))

    assert ended.code == 0
    assert (tmp_path / "run.SVG").read_text(encoding="utf-8") == draw(run("noisy_neighbour"), "fair", "weights")


@pytest.mark.parametrize("picture", PICTURES)
def test_the_pictures_of_the_docs_are_what_the_command_draws(picture: str, tmp_path: Path) -> None:
    scenario, order, priorities = PICTURES[picture]
    drawn = tmp_path / "drawn.svg"
    command = ("simulate", scenario, "--order", order, "--priorities", priorities, "--picture", str(drawn))

    assert manage(*command).code == 0
    assert drawn.read_text(encoding="utf-8") == (ROOT / "docs" / "images" / f"{picture}.svg").read_text(
        encoding="utf-8"
    )

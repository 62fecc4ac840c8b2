"""The drawings of the architecture show modules and imports that there are."""

from __future__ import annotations

import ast
import re
import tomllib
from itertools import pairwise
from pathlib import Path

from tests.docs.markdown import ROOT, blocks, section, table_rows

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROLES = [line.split(":")[0] for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines() if line]
ARROW = re.compile(r"-+(?:\s*\"[^\"]*\"\s*-+)?>")
NODE = re.compile(r"[\[({>/].*$")


def chains(diagram: str) -> list[list[str]]:
    """The names along each line of arrows, without their boxes."""
    lines = [line.strip() for line in diagram.splitlines() if "--" in line]
    return [[NODE.sub("", name.strip()) for name in ARROW.split(line)] for line in lines]


def jobs_file(name: str) -> Path:
    """A module or package of the jobs app, or one of its commands."""
    module, command = ROOT / "jobs" / f"{name}.py", ROOT / "jobs" / "management" / "commands" / f"{name}.py"
    return next((path for path in (module, ROOT / "jobs" / name) if path.exists()), command)


def imports(path: Path) -> set[str]:
    """The names of the jobs modules that a file, or any file of a package, imports."""
    found: set[str] = set()
    files = path.glob("*.py") if path.is_dir() else [path]
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.ImportFrom) and node.module == "jobs":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jobs."):
            found.add(str(node.module).split(".")[1])
    return found


def test_the_modules_of_the_jobs_app_import_each_other_as_drawn() -> None:
    (diagram,) = blocks(section(PAGE, "C3: inside the jobs app"), "mermaid")
    outside = {"scraper", "web"}
    drawn = [(a, b) for chain in chains(diagram) for a, b in pairwise(chain) if a not in outside]

    assert drawn
    assert [name for pair in drawn for name in pair if not jobs_file(name).exists()] == []
    assert [(a, b) for a, b in drawn if b not in imports(jobs_file(a))] == []


def test_the_apps_stand_above_each_other_as_the_import_contract_says() -> None:
    diagram = blocks(section(PAGE, "C3: the apps"), "mermaid")[0]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]

    drawn = [[name.replace("&", "|") for name in chain] for chain in chains(diagram)]
    assert drawn == [contracts[0]["layers"]]


def test_every_role_of_the_procfile_is_told() -> None:
    told = [row[0] for row in table_rows(section(PAGE, "C2: roles and stores"))]

    assert sorted(set(ROLES) - set(told)) == []

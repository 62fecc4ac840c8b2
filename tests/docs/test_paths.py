"""The check for dead links and paths finds them, and finds none in the project's own docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import paths
from tests.docs.markdown import ROOT


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path, "jobs/states.py", "")
    write(tmp_path, "docs/there.md", "# The Title, here\n")
    write(tmp_path, "tests/jobs/test_it.py", "def test_one() -> None: ...\ndef helper() -> None: ...\n")
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "[x](docs/gone.md)",
        "![x](docs/images/gone.svg)",
        "[x](docs/there.md#other)",
        "`jobs/gone.py`",
        "`gone/`",
        "`jobs/gone`",
        "`gone.py`",
        "`tests/jobs/test_it.py::test_two`",
        "`tests/jobs/test_it.py::helper`",
        "`tests/jobs/test_gone.py::test_one`",
    ],
)
def test_a_dead_link_or_path_is_found(project: Path, line: str) -> None:
    write(project, "README.md", f"# Title\n\n{line}\n")

    found = paths.findings(project)

    assert len(found) == 1
    assert found[0].startswith("README.md:3: ")


@pytest.mark.parametrize(
    "line",
    [
        "[x](docs/there.md#the-title-here)",
        "[x](https://example.org/gone.md)",
        "`jobs/states.py`, `jobs/`, `states.py`",
        "`tests/jobs/test_it.py::test_one`",
        "`application/problem+json`, `text/html`, `GET /jobs/{id}`, `.data/dev.json`, `jobs.high`",
        "```\njobs/gone.py\n`jobs/gone.py`\n```",
    ],
)
def test_what_exists_or_is_no_path_is_left_alone(project: Path, line: str) -> None:
    write(project, "README.md", f"# Title\n\n{line}\n")

    assert paths.findings(project) == []


def test_the_docs_of_this_project_name_nothing_that_is_gone() -> None:
    assert paths.findings(ROOT) == []

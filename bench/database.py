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
def scratch_database(url: str) -> Iterator[str]:
    """The address of an empty database, which is dropped at the end with whoever is still connected to it.

    Raises BenchFailed where none can be made.
    """
    parts = urlsplit(url)
    name = f"{parts.path.strip('/')[:40]}_bench_{os.getpid()}"
    _run(url, "CREATE DATABASE {}", name)
    try:
        yield parts._replace(path=f"/{name}").geturl()
    finally:
        _run(url, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _run(url: str, statement: str, name: str) -> None:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as link:
            link.execute(sql.SQL(statement).format(sql.Identifier(name)))
    except psycopg.Error as error:
        raise BenchFailed(f"The database in DATABASE_URL cannot be used: {error}") from error

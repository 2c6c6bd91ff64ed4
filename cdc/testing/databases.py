"""A Postgres for tests: in a container where Docker answers, else out of a wheel; and databases in it."""

import contextlib
import importlib.util
import itertools
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.embedded.postgres import postgres

IMAGE: Final = "postgres:17"
DOCKER_SOCKETS: Final = ("/var/run/docker.sock", "~/.docker/run/docker.sock")

MAINTENANCE: Final = "tests"
"""The database from which others are made."""

DROP_ATTEMPTS_MAX: Final = 100
"""Ten seconds: a walsender ends at once, unless the machine is very busy."""

_numbers = itertools.count(1)


@asynccontextmanager
async def running_postgres() -> AsyncIterator[str]:
    """A server that decodes logically; how to connect to it."""
    if docker_answers() and importlib.util.find_spec("testcontainers"):
        from testcontainers.postgres import PostgresContainer  # noqa: PLC0415 - an import that only Docker pays for

        with PostgresContainer(IMAGE, driver=None).with_command("postgres -c wal_level=logical") as container:
            yield container.get_connection_url()
    else:
        async with postgres(MAINTENANCE) as url:
            yield url


def docker_answers() -> bool:
    """Whether there is an engine."""
    for path in DOCKER_SOCKETS:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(Path(path).expanduser()))
            return True
    return False


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """A database that nobody used before; it goes with its slots. `server` leads to any other one."""
    name = f"shapelog_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            _drop_slots(admin, name)
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _drop_slots(admin: psycopg.Connection, database: str) -> None:
    """A slot is free when its reader's process has ended, which takes the server a moment."""
    for attempt in range(DROP_ATTEMPTS_MAX):
        try:
            admin.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [database]
            )
        except psycopg.errors.ObjectInUse:
            if attempt + 1 == DROP_ATTEMPTS_MAX:
                raise
            admin.execute("SELECT pg_sleep(0.1)")
        else:
            return

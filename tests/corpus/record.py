"""`python -m tests.corpus.record`: tell the story to every Postgres at hand, and record what its walsender sends."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from cdc.source.copy_both import Framing, start_stream
from tests.corpus import FOLDER, write_frames
from tests.corpus.story import OPTIONAL, PUBLICATION, TABLES, TOLD, TYPES, WIDE
from tests.postgres import WANTED, Database, Server, make_server, new_database

_HEADER_BYTES = 25
"""Of the walsender, in front of each message."""


def tell(database: Database) -> None:
    """Play the story; it ends with a logical message."""
    with database.connect() as connection:
        connection.execute(TYPES + TABLES)
        connection.execute(WIDE)
        connection.execute(PUBLICATION)
        possible = _possible(connection)
        connection.execute("SELECT pg_create_logical_replication_slot('recorded', 'pgoutput')")
        for statement in [*possible, *TOLD]:
            connection.execute(statement)
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:  # its WAL records hold many rows each
            for number in range(1000, 1300):
                copy.write_row((number, f"copied {number}"))
        connection.execute("SELECT pg_logical_emit_message(true, 'end', '')")


def _possible(connection: "psycopg.Connection[tuple[Any, ...]]") -> list[LiteralString]:
    """The statements whose preparation works on this server."""
    possible = []
    for preparation, statement in OPTIONAL:
        with contextlib.suppress(psycopg.errors.FeatureNotSupported):
            connection.execute(preparation)
            possible.append(statement)
    return possible


async def stream(database: Database, framing: Framing = Framing.LIBPQ) -> list[bytes]:
    """The frames of the story, up to its last transaction."""
    options = "-c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=3 -c bytea_output=hex -c timezone=UTC"
    connection = await psycopg.AsyncConnection.connect(
        database.conninfo(options=options), autocommit=True, replication="database"
    )
    command = (
        "START_REPLICATION SLOT recorded LOGICAL 0/0 (proto_version '1', publication_names 'recorded', messages 'true')"
    )
    frames: list[bytes] = []
    try:
        copying = await start_stream(connection, command, framing)
        with contextlib.closing(copying):
            while not _has_ended(frames):
                batch = await copying.batch()
                bounds = zip(batch.starts.tolist(), batch.ends.tolist(), strict=True)
                frames += [batch.buffer[start:stop].tobytes() for start, stop in bounds]
    finally:
        await connection.close()
    return frames


def _has_ended(frames: list[bytes]) -> bool:
    """Whether the last two messages are the final logical message and its Commit."""
    messages = [frame[_HEADER_BYTES:] for frame in frames[-100:] if frame[:1] == b"w"]
    return len(messages) > 1 and messages[-2][10:14] == b"end\0" and messages[-1][:1] == b"C"


def record(server: Server, path: Path) -> None:
    database = new_database(server)
    tell(database)
    frames = asyncio.run(stream(database))
    write_frames(path, frames)


def main() -> None:
    for version in WANTED:
        server = make_server(version)
        try:
            record(server, FOLDER / f"pg{version}.frames.xz")
        finally:
            server.remove()


if __name__ == "__main__":
    main()

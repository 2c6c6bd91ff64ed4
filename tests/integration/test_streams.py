"""The stream from real servers, through libpq and through our own framing: the same frames, whatever happens to us."""

import asyncio
import contextlib
import random
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest

from cdc.source.copy_both import CopyBoth, Framing, start_stream
from cdc.source.errors import MessageTooLarge, StreamEnded, StreamRefused
from cdc.source.fragments import Event, Fragment
from cdc.source.libpq_stream import LibpqStream
from cdc.source.limits import MESSAGE_BYTES_MAX, READY_BATCHES_MAX
from cdc.source.lsn import Lsn, parse_lsn
from cdc.source.pgoutput import Decoder
from cdc.source.plain_socket import PlainStream
from cdc.source.plain_source import PlainSource
from cdc.source.relations import Relations
from cdc.source.walsender import CopyBatch, Status
from tests.corpus import read_frames, recorded
from tests.corpus.record import stream, tell
from tests.corpus.story import TYPES, VALUES
from tests.pgoutput_bytes import copy_data
from tests.plain_pgoutput import items_of, plain_items
from tests.postgres import Database, Server, new_database, server_user
from tests.proxy import Proxy
from tests.waiting import eventually

BOTH = pytest.mark.parametrize("framing", [Framing.LIBPQ, Framing.PLAIN], ids=["libpq", "plain"])
COMMAND = "START_REPLICATION SLOT followed LOGICAL 0/0 (proto_version '1', publication_names 'followed')"


@contextlib.asynccontextmanager
async def following(
    conninfo: str, framing: Framing, message_bytes_max: int = MESSAGE_BYTES_MAX
) -> AsyncIterator[CopyBoth]:
    connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, replication="database")
    try:
        copying = await start_stream(connection, COMMAND, framing, message_bytes_max)
        with contextlib.closing(copying):
            yield copying
    finally:
        await connection.close()


def publish(database: Database, *tables: Any) -> None:
    database.execute(
        *tables,
        "CREATE PUBLICATION followed FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('followed', 'pgoutput')",
    )


def frames_of(batch: CopyBatch) -> list[bytes]:
    bounds = zip(batch.starts.tolist(), batch.ends.tolist(), strict=True)
    return [batch.buffer[start:end].tobytes() for start, end in bounds]


def without_clock(frame: bytes) -> bytes:
    return frame[:17] + frame[25:]


async def drained(copying: CopyBoth) -> None:
    """Read until the stream ends."""
    while True:
        await copying.batch()


def bodies_in(events: list[Event]) -> list[str]:
    tables = [table for event in events if isinstance(event, Fragment) for table in event.changes]
    return [row["body"] for table in tables for row in table.rows["new"].to_pylist()]


async def bodies(copying: CopyBoth, count: int) -> list[str]:
    """Follow until so many rows of the table `notes` came; their texts."""
    decoder, found = Decoder(Relations()), list[str]()
    while len(found) < count:
        found += bodies_in(decoder.feed(await copying.batch()))
    return found


async def test_both_ways_bring_the_same_frames(database: Database) -> None:
    tell(database)
    database.execute("SELECT pg_copy_logical_replication_slot('recorded', 'second')")
    first = await stream(database, Framing.LIBPQ)
    # The server notices a moment after us that the first stream has ended.
    await eventually(lambda: not database.slots()["recorded"]["active"], "the slot to be free again")
    second = await stream(database, Framing.PLAIN)
    data = [[without_clock(frame) for frame in frames if frame[:1] == b"w"] for frames in (first, second)]
    assert data[0] == data[1]
    events = Decoder(Relations()).feed(CopyBatch.join(first))
    assert items_of(events) == plain_items(first)


@BOTH
async def test_it_is_known_whether_something_has_come(newest_database: Database, framing: Framing) -> None:
    """Before anybody takes it; and that nothing has, once all is taken."""
    publish(newest_database, "CREATE TABLE notes (id int PRIMARY KEY, body text)")
    async with following(newest_database.conninfo(), framing) as copying:
        reading = asyncio.create_task(drained(copying))
        await eventually(lambda: not copying.is_receiving, "the server to have no more")
        reading.cancel()
        await asyncio.wait([reading])
        newest_database.execute("INSERT INTO notes VALUES (1, 'one')")
        await eventually(lambda: copying.is_receiving, "the row to come")
        assert await bodies(copying, 1) == ["one"]


@BOTH
async def test_values_are_the_text_that_postgres_shows(database: Database, framing: Framing) -> None:
    publish(database, TYPES)
    database.execute(*VALUES)
    with database.connect(options="-c timezone=UTC -c IntervalStyle=postgres") as connection:
        result = connection.execute("SELECT * FROM every_type ORDER BY id").pgresult
        assert result is not None
        shown = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
    expected = [[None if value is None else value.decode() for value in row] for row in shown]
    found: list[list[str | None]] = []
    async with following(database.conninfo(options="-c timezone=UTC -c IntervalStyle=postgres"), framing) as copying:
        decoder = Decoder(Relations())
        while len(found) < len(expected):
            for event in decoder.feed(await copying.batch()):
                if isinstance(event, Fragment):
                    rows = [row for table in event.changes for row in table.rows["new"].to_pylist()]
                    found += [list(row.values()) for row in rows]
    assert found == expected


@BOTH
async def test_a_cancelled_batch_loses_nothing(newest_database: Database, framing: Framing) -> None:
    publish(newest_database, "CREATE TABLE notes (body text)")
    newest_database.execute("INSERT INTO notes SELECT 'note ' || n FROM generate_series(1, 20000) n")
    chance = random.Random(5)
    decoder, found, cancelled = Decoder(Relations()), list[str](), 0
    async with following(newest_database.conninfo(), framing) as copying:
        while len(found) < 20_000:
            waiting = asyncio.ensure_future(copying.batch())
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            if waiting.cancelled():
                cancelled += 1
                continue
            found += bodies_in(decoder.feed(waiting.result()))
        newest_database.execute("INSERT INTO notes VALUES ('the stream still flows')")
        while not found[-1].startswith("the"):
            found += bodies_in(decoder.feed(await copying.batch()))
    assert cancelled > 0
    assert found == [f"note {number}" for number in range(1, 20_001)] + ["the stream still flows"]


@BOTH
async def test_a_missing_slot_is_a_refusal_with_the_servers_reason(newest_database: Database, framing: Framing) -> None:
    with pytest.raises(StreamRefused, match="followed") as refused:
        async with following(newest_database.conninfo(), framing):
            pass
    assert refused.value.sqlstate == "42704"


@BOTH
async def test_an_ended_walsender_says_why(database: Database, framing: Framing) -> None:
    publish(database, "CREATE TABLE notes (body text)")
    async with following(database.conninfo(), framing) as copying:
        database.execute("INSERT INTO notes VALUES ('last')")
        assert await bodies(copying, 1) == ["last"]
        query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'followed'"
        database.execute(query)
        with pytest.raises(StreamEnded) as ended:
            await drained(copying)
        assert ended.value.sqlstate == "57P01"
        with pytest.raises(StreamEnded):
            await copying.batch()
        with pytest.raises(StreamEnded):
            copying.send(Status(Lsn(1), Lsn(1)).encode(0))


@BOTH
async def test_a_broken_connection_ends_the_stream(newest_database: Database, framing: Framing) -> None:
    publish(newest_database, "CREATE TABLE notes (body text)")
    server = newest_database.server
    with Proxy(f"{server.host}/.s.PGSQL.{server.port}") as proxy:
        conninfo = newest_database.conninfo(host="127.0.0.1", port=proxy.port, sslmode="disable")
        async with following(conninfo, framing) as copying:
            newest_database.execute("INSERT INTO notes VALUES ('before')")
            assert await bodies(copying, 1) == ["before"]
            proxy.cut()
            with pytest.raises(StreamEnded):
                await drained(copying)


@BOTH
async def test_a_status_moves_the_slot(database: Database, framing: Framing) -> None:
    publish(database, "CREATE TABLE notes (body text)")
    async with following(database.conninfo(), framing) as copying:
        database.execute("INSERT INTO notes VALUES ('done')")
        decoder, end = Decoder(Relations()), Lsn(0)
        while not end:
            for event in decoder.feed(await copying.batch()):
                if isinstance(event, Fragment) and event.ended_count:
                    end = Lsn(int(event.transactions.end_lsn[-1]))
        copying.send(Status(decoder.received, end).encode(0))
        confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'followed'"
        await eventually(lambda: parse_lsn(database.value(confirmed)) == end, "the slot to move")


@BOTH
async def test_a_busy_consumer_is_not_flooded_and_can_still_answer(database: Database, framing: Framing) -> None:
    publish(database, "CREATE TABLE notes (body text)")
    database.execute("INSERT INTO notes SELECT repeat('x', 1000) || n FROM generate_series(1, 20000) n")
    async with following(database.conninfo(), framing) as copying:
        assert isinstance(copying, PlainStream | LibpqStream)
        reader = copying._reader
        await eventually(lambda: len(reader._ready) == READY_BATCHES_MAX, "a batch to wait for us")
        copying.send(Status(Lsn(42), Lsn(0)).encode(0))
        written = "SELECT write_lsn FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid"
        await eventually(lambda: database.value(written) == "0/2A", "the walsender to hear us")
        assert len(await bodies(copying, 20_000)) == 20_000
        if isinstance(reader._source, PlainSource):
            assert len(reader._source._free) <= READY_BATCHES_MAX + 2


@BOTH
async def test_values_of_many_megabytes_pass(newest_database: Database, framing: Framing) -> None:
    publish(newest_database, "CREATE TABLE notes (body text)")
    sizes = [3, 5_000_000, 17_000_000, 10]
    with newest_database.connect() as connection:
        for size in sizes:
            connection.execute("INSERT INTO notes VALUES (repeat('x', %s))", [size])
    async with following(newest_database.conninfo(), framing) as copying:
        assert [len(body) for body in await bodies(copying, len(sizes))] == sizes
        if isinstance(copying, PlainStream):
            newest_database.execute("INSERT INTO notes VALUES ('the buffer is small again')")
            await bodies_after(copying)
            assert isinstance(copying._reader._source, PlainSource)
            assert len(copying._reader._source._buffer) < 2_000_000


async def bodies_after(copying: CopyBoth) -> None:
    while b"small again" not in b"".join(frames_of(await copying.batch())):
        pass


async def test_a_message_above_the_limit_is_refused_by_name(newest_database: Database) -> None:
    publish(newest_database, "CREATE TABLE notes (body text)")
    newest_database.execute("INSERT INTO notes VALUES (repeat('x', 100000))")
    async with following(newest_database.conninfo(), Framing.PLAIN, message_bytes_max=50_000) as copying:
        with pytest.raises(MessageTooLarge, match="50000"):
            await bodies(copying, 1)
    await eventually(lambda: newest_database.slots()["followed"]["active"] is False, "the slot to be free")
    async with following(newest_database.conninfo(), Framing.LIBPQ) as copying:
        decoder = Decoder(Relations(), message_bytes_max=50_000)
        batch = await copying.batch()
        while max(batch.ends - batch.starts) < 50_000:
            decoder.feed(batch)
            batch = await copying.batch()
        with pytest.raises(MessageTooLarge, match="50000"):
            decoder.feed(batch)


async def test_our_framing_is_chosen_where_nothing_is_encrypted(newest_database: Database) -> None:
    publish(newest_database, "CREATE TABLE notes (body text)")
    async with following(newest_database.conninfo(), Framing.AUTO) as copying:
        assert isinstance(copying, PlainStream)
    for gssencmode in ("disable", "prefer"):
        conninfo = newest_database.tcp(gssencmode=gssencmode)
        await eventually(lambda: newest_database.slots()["followed"]["active"] is False, "the slot to be free")
        async with following(conninfo, Framing.AUTO) as copying:
            assert isinstance(copying, PlainStream)
            newest_database.execute("INSERT INTO notes VALUES ('a note')")
            assert (await bodies(copying, 1))[-1] == "a note"


def make_certificate(server: Server) -> None:
    subject = ["-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.crt"]
    key = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run(key, cwd=server.folder / "data", check=True, capture_output=True, user=server_user())


async def test_libpq_is_chosen_where_the_connection_is_encrypted(own_server: Callable[..., Server]) -> None:
    server = own_server("15")  # those from the wheel are built without TLS
    make_certificate(server)
    server.stop()
    server.configure(ssl="on")
    server.start()
    database = new_database(server)
    publish(database, "CREATE TABLE notes (body text)")
    database.execute("INSERT INTO notes SELECT 'secret ' || n FROM generate_series(1, 5000) n")
    async with following(database.tcp(sslmode="require"), Framing.AUTO) as copying:
        assert isinstance(copying, LibpqStream)
        assert len(await bodies(copying, 5000)) == 5000


@pytest.mark.parametrize("seed", range(5))
async def test_bytes_may_be_split_anywhere_on_their_way(seed: int) -> None:
    """The recorded stream through a socket, in pieces of any size, with other messages between."""
    frames = read_frames(recorded()[seed % len(recorded())])
    chance = random.Random(seed)
    notice, parameter = b"N\0\0\0\5\0", b"S\0\0\0\x08a\0b\0"
    ours, theirs = socket.socketpair()
    copying = PlainStream(ours)
    data = b"".join(copy_data([frame]) + chance.choice([b"", b"", notice, parameter]) for frame in frames)
    found: list[bytes] = []
    at = 0
    while len(found) < len(frames):
        if at < len(data):
            size = chance.choice([1, 3, 40, 5_000, 100_000])
            theirs.sendall(data[at : at + size])
            at += size
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001 if at < len(data) else 10):
                found += frames_of(await copying.batch())
    theirs.close()
    assert found == frames
    with pytest.raises(StreamEnded):
        await copying.batch()
    copying.close()

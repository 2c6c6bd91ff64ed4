"""Losing the server, the walsender or the network, in every phase: nothing is lost, nothing comes twice."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from cdc.source.errors import Unreachable
from cdc.source.session import Session
from tests.follower import Follower, following, settings_for
from tests.postgres import Database
from tests.proxy import Proxy
from tests.waiting import eventually

TRANSACTIONS = 60
"""Of all sizes: some are many fragments, most are many to a fragment."""


class Writer:
    """Commits transactions from a thread, through a connection that nobody cuts, and keeps the list: the oracle."""

    def __init__(self, database: Database) -> None:
        self.committed: list[int] = []
        self.done = threading.Event()
        self._database = database
        self._random = random.Random(7)

    def run(self) -> None:
        """A crash of the server may hide whether a commit was done, so each is looked up before it is done again."""
        next_value = 0
        for _ in range(TRANSACTIONS):
            size = self._random.choice([1, 1, 2, 10, 3000, 20000])
            values = range(next_value, next_value + size)
            next_value += size
            while not self._commit(values):
                pass
            self.committed += values
        self.done.set()

    def _commit(self, values: range) -> bool:
        bounds = (values[0], values[-1])
        try:
            with psycopg.connect(self._database.conninfo()) as connection:
                found = connection.execute("SELECT count(*) FROM t WHERE i BETWEEN %s AND %s", bounds).fetchone()
                if found == (0,):
                    connection.execute("INSERT INTO t SELECT generate_series(%s::int, %s::int)", bounds)
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def writing(database: Database) -> Iterator[Writer]:
    writer = Writer(database)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield writer
    finally:
        thread.join(60)
        assert not thread.is_alive()


async def survives(database: Database, conninfo: str, strike: Callable[[], None], strikes: int) -> Follower:
    """Follow a writer while `strike` strikes, each time after a little more has come; then compare."""
    database.execute("CREATE TABLE t (i int)")
    follower = Follower()
    async with following(settings_for(conninfo, "t", shutdown_seconds=0.5), follower) as (session, _):
        await follower.follow(session, lambda: bool(follower.connected))
        with writing(database) as writer:
            for _ in range(strikes):
                seen = len(follower.rows) + len(follower.open_rows)

                def more_came(seen: int = seen) -> bool:
                    return len(follower.rows) + len(follower.open_rows) > seen or writer.done.is_set()

                await asyncio.wait_for(follower.follow(session, more_came), 30)
                attempts = len(follower.connected)
                await asyncio.to_thread(strike)
                await _reconnected(follower, session, attempts)

            def all_came() -> bool:
                return writer.done.is_set() and len(follower.rows) >= len(writer.committed)

            await asyncio.wait_for(follower.follow(session, all_came), 40)
    assert sorted(int(value or "") for value in follower.values("i")) == writer.committed
    return follower


async def _reconnected(follower: Follower, session: Session, attempts: int) -> None:
    await asyncio.wait_for(follower.follow(session, lambda: len(follower.connected) > attempts), 30)


async def test_the_connection_is_cut(database: Database, proxy: Proxy) -> None:
    conninfo = database.conninfo(host="127.0.0.1", port=proxy.port)
    await survives(database, conninfo, proxy.cut, 5)


async def test_the_walsender_is_terminated(database: Database) -> None:
    def strike() -> None:
        database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'follower'"
        )

    await survives(database, database.conninfo(), strike, 5)


async def test_the_server_crashes_and_recovers(own_database: Database) -> None:
    def strike() -> None:
        own_database.server.stop("immediate")
        own_database.server.start()

    follower = await survives(own_database, own_database.conninfo(), strike, 3)
    assert len(follower.connected) >= 4


async def test_the_server_restarts_orderly(own_database: Database) -> None:
    def strike() -> None:
        own_database.server.stop("fast")
        own_database.server.start()

    await survives(own_database, own_database.conninfo(), strike, 2)


BYTES_UNTIL_CUT = [200, 1000, 2500, 4000, 5000, 6000, 7000, 10_000, 100_000]
"""From the first answer of a login, over the making of the slot, to the middle of the stream."""


async def test_the_connection_is_cut_in_every_phase(database: Database, proxy: Proxy) -> None:
    database.execute("CREATE TABLE t (i int)")
    conninfo = database.conninfo(host="127.0.0.1", port=proxy.port)
    async with following(settings_for(conninfo, "t")) as (session, follower):
        follow = asyncio.create_task(follower.follow(session, lambda: False))
        for number, size in enumerate(BYTES_UNTIL_CUT, 1):
            proxy.bytes_until_cut = size
            proxy.cut()  # so that the phase is counted from the login
            if number >= 3:  # by now the table is surely published, or this waits until it is
                await eventually(database.slots, "the slot")
                database.execute("INSERT INTO t SELECT generate_series(1, 2000)")
            await eventually(lambda: proxy.bytes_until_cut is None, f"the cut after {size} bytes")
        inserted = database.value("SELECT count(*) FROM t")
        await eventually(lambda: len(follower.rows) == inserted, "all rows")
        follow.cancel()
        await asyncio.wait([follow])
    assert len(database.slots()) == 1


async def test_the_network_is_away_for_a_while(newest_database: Database) -> None:
    """While nothing answers, the session tries again and again; it finds its way back by itself."""
    database = newest_database
    with Proxy(f"{database.server.host}/.s.PGSQL.{database.server.port}") as proxy:
        conninfo = database.conninfo(host="127.0.0.1", port=proxy.port)
        database.execute("CREATE TABLE t (i int)")
        async with following(settings_for(conninfo, "t")) as (session, follower):
            await follower.follow(session, lambda: bool(follower.connected))
            proxy.stop()
            database.execute("INSERT INTO t SELECT generate_series(1, 100)")
            follow = asyncio.create_task(follower.follow(session, lambda: len(follower.rows) == 100))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(follow), 1)
            proxy.start()
            await asyncio.wait_for(follow, 30)


async def test_a_process_that_dies_starts_again_where_it_was(database: Database) -> None:
    """Nothing but what is durable is kept between two sessions."""
    database.execute("CREATE TABLE t (i int)")
    settings = settings_for(database.conninfo(), "t")
    follower = Follower()
    for end in (100, 200, 300):
        session = Session(settings, known=follower.known)
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.connected) == end // 100), 20)  # noqa: B023
        database.execute("INSERT INTO t SELECT generate_series(1, 100)")
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.rows) >= end), 20)  # noqa: B023
        attempt = session.attempt
        assert attempt is not None
        await attempt.close()  # without a goodbye: the server last heard of whatever it last heard of
    assert len(follower.rows) == 300


async def test_a_cancelled_consumer_loses_nothing(database: Database) -> None:
    database.execute("CREATE TABLE t (i int, text text)")
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        database.execute("INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 30000) i")
        cancelled = 0
        while len(follower.rows) < 30000:
            task = asyncio.create_task(follower.follow(session, lambda: len(follower.rows) >= 30000))
            await asyncio.wait([task], timeout=0.003)
            cancelled += task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None
        assert cancelled > 1
        assert len(follower.connected) == 1, "no cancel ended the stream"


async def test_a_poor_start_names_the_server_without_its_password(newest_database: Database) -> None:
    conninfo = newest_database.conninfo(host="127.0.0.1", port=1, password="s3cret")  # noqa: S106  # what must not be shown
    session = Session(settings_for(conninfo, patience_seconds=0.5), known=lambda: None)
    with pytest.raises(Unreachable) as caught:
        await session.next()
    assert "s3cret" not in str(caught.value)
    assert "port=1" in str(caught.value)

"""The session on real servers: what it delivers, and what it tells the server."""

import asyncio

from tests.follower import following, settings_for
from tests.postgres import Database


def table(database: Database) -> None:
    database.execute("CREATE TABLE t (i int PRIMARY KEY, text text)")


async def test_delivers_what_is_committed(database: Database) -> None:
    table(database)
    async with following(settings_for(database.conninfo(), "t")) as (session, follower):
        await follower.follow(session, lambda: bool(follower.connected))
        database.execute(
            "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 1000) i", "INSERT INTO t VALUES (1001, 'y')"
        )
        await asyncio.wait_for(follower.follow(session, lambda: len(follower.rows) == 1001), 20)
    assert follower.values("i") == [str(i) for i in range(1, 1002)]
    assert database.slots()["follower"]["active"] is False

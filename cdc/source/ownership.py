"""Advisory locks of the session's second connection, held for as long as it lives: one reader for a slot.

The slot itself lets only one connection stream. The lock covers the time around that too, in which a second process
would alter the publication or judge the slot; and it tells who has it.

A publication may have several readers, each with a slot of its own. Their lock is shared: it says only that they are
there, so that none takes out a table that another follows.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from cdc.source.connections import Connection, fetch
from cdc.source.errors import OwnedElsewhere
from cdc.source.holder_queries import session_of
from cdc.source.holders import Holder
from cdc.source.limits import OWNERSHIP_SECONDS_MAX, POLL_SECONDS

LOCK_CLASS: Final = 0x5348_4C47
"""The first half of the lock's key, so that our locks are not somebody else's. Kept for ever: versions exclude each
other by it."""

PUBLICATION_LOCK_CLASS: Final = LOCK_CLASS + 1
"""The same for publications."""

Waiting = Callable[[Holder | None], None]


async def own_slot(
    connection: Connection,
    slot: str,
    application: str,
    waiting: Waiting | None = None,
    seconds_max: float = OWNERSHIP_SECONDS_MAX,
) -> None:
    """Take the lock, and wait for the one who has it; raises `OwnedElsewhere` with its process and name."""
    shown: int | None = None
    end = asyncio.get_running_loop().time() + seconds_max
    while not await _try_lock(connection, slot):
        holder = await lock_holder(connection, slot)
        if holder is not None and holder.application == application:
            # Our own connection of before, whose loss the server has not noticed yet.
            await fetch(connection, "SELECT pg_terminate_backend(%s)", holder.pid)
        elif holder is not None and holder.pid != shown:
            shown = holder.pid
            if waiting is not None:
                waiting(holder)
        if asyncio.get_running_loop().time() > end:
            raise OwnedElsewhere(
                f"the slot {slot!r} is in use by {holder or 'a session that just ended'}", pid=shown, slot=slot
            )
        await asyncio.sleep(POLL_SECONDS)


async def lock_holder(connection: Connection, slot: str) -> Holder | None:
    """Who has the lock now."""
    rows = await fetch(
        connection,
        "SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s "
        "AND l.objid = (hashtext(%s)::bigint & 4294967295)::oid AND l.objsubid = 2 "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        LOCK_CLASS,
        slot,
    )
    return await session_of(connection, rows[0]["pid"]) if rows else None


async def _try_lock(connection: Connection, slot: str) -> bool:
    rows = await fetch(connection, "SELECT pg_try_advisory_lock(%s, hashtext(%s)) AS taken", LOCK_CLASS, slot)
    return bool(rows[0]["taken"])


async def share_publication(connection: Connection, publication: str) -> None:
    """Say that it is in use, as others may. Nobody of ours has it for himself, and no stranger is waited for."""
    await fetch(connection, "SELECT pg_try_advisory_lock_shared(%s, hashtext(%s))", PUBLICATION_LOCK_CLASS, publication)


async def is_shared(connection: Connection, publication: str) -> bool:
    """Whether more than one session says that it uses the publication."""
    rows = await fetch(
        connection,
        "SELECT count(DISTINCT l.pid) AS sessions FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted "
        "AND l.classid = %s AND l.objid = (hashtext(%s)::bigint & 4294967295)::oid AND l.objsubid = 2 "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        PUBLICATION_LOCK_CLASS,
        publication,
    )
    return int(rows[0]["sessions"]) > 1

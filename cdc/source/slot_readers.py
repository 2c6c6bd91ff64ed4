"""Who reads the slot when we want to: a lost connection of ours, which is ended, or somebody else, who is named.

A lost connection may even be another process's of ours: we have the lock, so it can be no living one. The server may
notice late that it is lost, and ends it when it comes to that: its walsender computes, or waits to write.
"""

import asyncio
import contextlib
from collections.abc import Callable

from cdc.source.connections import Connection, fetch
from cdc.source.errors import AccessRefused, SlotBusy
from cdc.source.holder_queries import session_of
from cdc.source.holders import Holder
from cdc.source.limits import CONNECT_SECONDS_MAX, FREE_POLL_SECONDS
from cdc.source.slot_commands import read_slot


async def free_slot(connection: Connection, name: str, ours: str, waiting: Callable[[Holder], None]) -> None:
    """End a lost connection of ours that still has the slot, and wait until it is gone; others are left alone.

    `ours` is how the names of our connections begin. To fail, and try again after growing pauses, would take longer.
    """
    shown: int | None = None
    end = asyncio.get_running_loop().time() + CONNECT_SECONDS_MAX
    while (holder := await _reader_of(connection, name)) is not None and holder.application.startswith(ours):
        if holder.pid != shown:
            shown = holder.pid
            waiting(holder)
            await _end(connection, holder)
        if asyncio.get_running_loop().time() > end:
            raise SlotBusy(f"the slot {name!r} is not let go by {holder}", pid=holder.pid)
        await asyncio.sleep(FREE_POLL_SECONDS)


async def busy_slot(connection: Connection, name: str, ours: str, message: str) -> SlotBusy:
    """That somebody reads the slot after all, and who; a lost connection of ours is ended, for the next attempt."""
    holder = await _reader_of(connection, name)
    if holder is not None and holder.application.startswith(ours):
        await _end(connection, holder)
    return SlotBusy(f"{message}: {holder or 'it just ended'}")


async def _reader_of(connection: Connection, name: str) -> Holder | None:
    slot = await read_slot(connection, name)
    return None if slot is None or slot.active_pid is None else await session_of(connection, slot.active_pid)


async def _end(connection: Connection, holder: Holder) -> None:
    with contextlib.suppress(AccessRefused):  # it logged in with more rights than we have: the server must notice
        await fetch(connection, "SELECT pg_terminate_backend(%s)", holder.pid)

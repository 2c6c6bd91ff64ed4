"""Reading, making, looking into and dropping a replication slot.

Invariants:
    a slot whose making fails, runs out of time or is cancelled does not exist afterwards
    a temporary slot is made on the connection that reads it, and ends with it
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from cdc.source.connections import Connection, fetch
from cdc.source.errors import SlotCreationBlocked, SourceError
from cdc.source.holder_queries import blockers_of, prepared_transactions
from cdc.source.holders import Holder
from cdc.source.limits import POLL_SECONDS, SLOT_CREATION_SECONDS_MAX
from cdc.source.lsn import Lsn, format_lsn, parse_lsn
from cdc.source.slot import PLUGIN, SlotState
from cdc.source.transactions import read_commit_time

FAILOVER_SINCE: Final = 170_000
"""The first server version that carries slots over to its standbys."""

Waiting = Callable[[tuple[Holder, ...]], None]
"""Told whom we wait for, whenever that changes."""


async def read_slot(connection: Connection, name: str) -> SlotState | None:
    """The slot, whichever database it is for."""
    # As JSON, since each version of Postgres has other columns.
    rows = await fetch(connection, "SELECT to_jsonb(s) AS slot FROM pg_replication_slots s WHERE slot_name = %s", name)
    return SlotState.from_row(rows[0]["slot"]) if rows else None


async def create_slot(
    control: Connection,
    maker: Connection,
    name: str,
    *,
    temporary: bool = False,
    waiting: Waiting | None = None,
    seconds_max: float = SLOT_CREATION_SECONDS_MAX,
) -> Lsn:
    """Make the slot on `maker`, and return where it begins. `control` watches: `maker` is busy until it is made.

    A slot begins where no transaction is open, so this waits for those that are, in all databases.
    """
    making = asyncio.create_task(_make(maker, name, temporary=temporary))
    try:
        await _watch(control, maker.info.backend_pid, making, waiting, seconds_max)
        return making.result()
    except BaseException:
        # A plain cancel would leave it to chance whether the server has heard; while it has not, the half-made slot
        # holds back WAL and vacuum.
        await asyncio.shield(_abandon(control, maker.info.backend_pid, making, name))
        raise


async def last_commit_below(connection: Connection, name: str, options: Mapping[str, str], lsn: Lsn) -> int | None:
    """When the last transaction was committed that the slot would send of those below `lsn`; None: there is none.

    Microseconds since 1970. The slot does not move. The server decodes all from what is confirmed to `lsn` for it, and
    gives us one message.
    """
    query = """
        SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s, NULL, VARIADIC %s) WITH ORDINALITY
        WHERE get_byte(data, 0) = ascii('C') ORDER BY ordinality DESC LIMIT 1
    """
    texts = [text for option in options.items() for text in option]
    rows = await fetch(connection, query, name, format_lsn(lsn), texts)
    return read_commit_time(rows[0]["data"]) if rows else None


async def drop_slot(connection: Connection, name: str) -> None:
    """Drop the slot if it is there."""
    await fetch(
        connection,
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
        name,
    )


async def _make(maker: Connection, name: str, *, temporary: bool) -> Lsn:
    if maker.info.server_version >= FAILOVER_SINCE:
        query = "SELECT lsn FROM pg_create_logical_replication_slot(%s, %s, %s, false, %s)"
        rows = await fetch(maker, query, name, PLUGIN, temporary, not temporary)
    else:
        query = "SELECT lsn FROM pg_create_logical_replication_slot(%s, %s, %s)"
        rows = await fetch(maker, query, name, PLUGIN, temporary)
    return parse_lsn(rows[0]["lsn"])


async def _watch(
    control: Connection, pid: int, making: "asyncio.Task[Lsn]", waiting: Waiting | None, seconds_max: float
) -> None:
    shown: tuple[int | str | None, ...] = ()
    end = asyncio.get_running_loop().time() + seconds_max
    while not (await asyncio.wait([making], timeout=POLL_SECONDS))[0]:
        holders = await blockers_of(control, pid) or await prepared_transactions(control)
        names = tuple(holder.pid or holder.prepared for holder in holders)
        if names != shown:
            shown = names
            if waiting is not None:
                waiting(holders)
        if asyncio.get_running_loop().time() > end:
            raise SlotCreationBlocked(
                f"the slot could not be made within {seconds_max:g} s: it waits for " + "; ".join(map(str, holders)),
                hint=" ".join(holder.mend for holder in holders) or None,
            )


async def _abandon(control: Connection, pid: int, making: "asyncio.Task[Lsn]", name: str) -> None:
    if not making.done():
        with contextlib.suppress(SourceError):  # without rights, or without a server, the cancel below has to do
            await fetch(control, "SELECT pg_cancel_backend(%s)", pid)
    making.cancel()
    with contextlib.suppress(asyncio.CancelledError, SourceError):
        await making
        await drop_slot(control, name)  # the cancel came too late

"""Looks at the slot from time to time, over a connection of its own, and whenever a status wants to know.

Invariant: a server that does not answer costs its asker SLOT_ASK_SECONDS_MAX, and nothing else.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final, LiteralString

from cdc.beside import beside
from cdc.limits import SLOT_ASK_SECONDS_MAX, SLOT_CALM_BYTES, SLOT_LOOK_SECONDS
from cdc.source.connections import Connection, connect_sql, fetch
from cdc.source.errors import SourceError
from cdc.source.holder_queries import open_transactions, prepared_transactions
from cdc.source.lsn import parse_lsn
from cdc.source.slot_commands import read_slot
from cdc.status.slot_cost import Decoding, SlotLook, WalRate

_WAL_END: Final[LiteralString] = """
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END AS lsn
"""

_DECODING: Final[LiteralString] = """
    SELECT r.state AS walsender_state, s.spill_bytes AS spilled_bytes, s.total_bytes AS decoded_bytes,
        age(l.catalog_xmin) AS catalog_xmin_age
    FROM pg_replication_slots l
    LEFT JOIN pg_stat_replication r ON r.pid = l.active_pid
    LEFT JOIN pg_stat_replication_slots s ON s.slot_name = l.slot_name
    WHERE l.slot_name = %s
"""


class SlotWatch:
    """The last look, and the rate of all."""

    def __init__(self, conninfo: str, slot: str, application: str) -> None:
        self.last: SlotLook | None = None
        self.fault: str | None = None
        """Why the last attempt to look failed."""
        self.rate = WalRate()
        self._conninfo = conninfo
        self._slot = slot
        self._application = application
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def look(self) -> SlotLook | None:
        """Look now; None if the server cannot be asked (`fault` says why)."""
        try:
            async with asyncio.timeout(SLOT_ASK_SECONDS_MAX), self._turn:
                self.last = await self._ask()
        except (SourceError, TimeoutError) as fault:
            self.fault = str(fault) or f"the server did not answer within {SLOT_ASK_SECONDS_MAX:g} s"
            await self._hang_up()
            return None
        self.fault = None
        self.rate.add(self.last.at, self.last.wal_end)
        return self.last

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(SLOT_LOOK_SECONDS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look while the context lasts."""
        try:
            async with beside(self.run(), "slot watch"):
                yield
        finally:
            await self._hang_up()

    async def _ask(self) -> SlotLook:
        if self._connection is None:
            self._connection = await connect_sql(self._conninfo, self._application)
        return await look_at_slot(self._connection, self._slot, time.monotonic())

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                await connection.close()


async def look_at_slot(connection: Connection, slot: str, now: float) -> SlotLook:
    """One look."""
    wal_end = (await fetch(connection, _WAL_END))[0]["lsn"]
    found, rows = await read_slot(connection, slot), await fetch(connection, _DECODING, slot)
    look = SlotLook(now, parse_lsn(wal_end or "0/0"), found, decoding=Decoding(**rows[0]) if rows else None)
    if (look.retained_bytes or 0) - (look.unconfirmed_bytes or 0) < SLOT_CALM_BYTES:
        return look
    open_ones = [*await open_transactions(connection), *await prepared_transactions(connection)]
    return replace(look, oldest=max(open_ones, key=lambda one: one.transaction_seconds or 0, default=None))

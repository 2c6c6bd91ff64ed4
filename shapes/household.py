"""What births, endings and requests share: one of each for a folder and a slot."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cdc.source.connections import Connection, connect_sql, cut_after
from cdc.source.session import Session
from shapes.collector import Collector
from shapes.endings import Endings
from shapes.limits import ASK_SECONDS_MAX
from shapes.lineage import Lineage
from shapes.registry import Registry
from storage.clocks import Clocks
from storage.limits import CHUNK_WIRE_BYTES
from storage.store import Store


@dataclass(slots=True)
class Household:
    """The parts that the program is composed of."""

    conninfo: str
    application: str
    session: Session
    store: Store
    registry: Registry
    lineage: Lineage
    collector: Collector
    endings: Endings
    clocks: Clocks
    chunk_bytes: int = CHUNK_WIRE_BYTES
    is_streaming: bool = False
    """There was a connection, and what was known before it has been restored."""
    wal_end_at_connect: int = 0
    """Where the server's WAL ended when we connected last: past it, the stream has caught up."""
    attempt: int = 0
    """The last connection whose identity was judged (A2): G is confirmed to no other."""
    wanted: dict[object, frozenset[int]] = field(default_factory=dict)
    """Tables and partitions of each birth: nobody follows them yet, and they must stay in the publication."""
    turn: asyncio.Condition = field(default_factory=asyncio.Condition)
    """Held while the stream or somebody else changes what the collector does; told after each event."""

    @asynccontextmanager
    async def control(self, seconds_max: float | None = ASK_SECONDS_MAX) -> AsyncIterator[Connection]:
        """A connection for a few queries. One that takes longer is cut: its query fails as if the server had gone."""
        connection = await connect_sql(self.conninfo, self.application)
        try:
            with contextlib.nullcontext() if seconds_max is None else cut_after(connection, seconds_max):
                yield connection
        finally:
            await connection.close()

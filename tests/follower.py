"""A consumer of a session that keeps everything in memory and confirms what is whole: what tests check promises with.

It does what the layers above must do, as plainly as possible: rows by offset, open ones dropped at a new connection,
G = the end of the last whole transaction, or of the WAL when nothing is open.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.source.attempt import Arrived, Connected, Delivery, PublicationAltered, Stopping
from cdc.source.fragments import Fragment, KeepAlive, Kind
from cdc.source.handshake import Settings
from cdc.source.identity import Known
from cdc.source.lsn import LSN_ZERO, Lsn
from cdc.source.session import Session

Row = tuple[str, Kind, dict[str, str | None] | None]


@dataclass
class Follower:
    """What one process would have on disk, and how it gets there."""

    flushing: bool = True
    """Whether what is whole becomes durable: a disk that is stuck does not stop the stream."""
    rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    open_rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    durable: Lsn = LSN_ZERO
    connected: list[Connected] = field(default_factory=list)
    stopping: list[Stopping] = field(default_factory=list)
    altered: list[PublicationAltered] = field(default_factory=list)
    replayed: int = 0
    is_open: bool = False

    def known(self) -> Known | None:
        """What would be read from disk at a start."""
        return Known(self.connected[-1].identity, self.durable) if self.connected else None

    def take(self, delivery: Delivery, session: Session | None = None) -> None:
        match delivery:
            case Connected():
                if not self.connected:
                    self.durable = delivery.start
                self.connected.append(delivery)
                self.open_rows.clear()
                self.is_open = False
            case Arrived(_, Fragment() as fragment):
                self._take_fragment(fragment)
            case Arrived(_, KeepAlive() as keepalive):
                if not self.is_open:
                    self._flush(keepalive.wal_end)
            case Stopping():
                self.stopping.append(delivery)
            case PublicationAltered():
                self.altered.append(delivery)
            case _:
                pass
        if session is not None and self.connected:
            session.confirm(self.connected[-1].attempt, self.durable)

    def _take_fragment(self, fragment: Fragment) -> None:
        for changes in fragment.changes:
            for row in changes.rows.to_pylist():
                self.open_rows[row["tx"], row["op"]] = (str(changes.relation), Kind(row["kind"]), row["new"])
        ended = fragment.transactions.end_lsn[: fragment.ended_count]
        self.is_open = fragment.ends_open
        if len(ended):
            last_ended = int(fragment.transactions.commit_lsn[fragment.ended_count - 1])
            done = {at: row for at, row in self.open_rows.items() if at[0] <= last_ended}
            for at, row in done.items():
                del self.open_rows[at]
                if at in self.rows:
                    assert self.rows[at] == row, f"offset {at} came twice, with different rows"
                    self.replayed += 1
                self.rows[at] = row
            self._flush(Lsn(int(ended[-1])))

    def _flush(self, lsn: Lsn) -> None:
        if self.flushing:
            self.durable = max(self.durable, lsn)

    async def follow(self, session: Session, until: Callable[[], bool]) -> None:
        """Take what comes until a condition holds."""
        while not until():
            self.take(await session.next(), session)

    def values(self, column: str, table: str | None = None) -> list[str | None]:
        """Of the rows inserted, in the order of offsets."""
        ordered = [self.rows[at] for at in sorted(self.rows)]
        return [new[column] for name, kind, new in ordered if kind is Kind.INSERT and new and table in (None, name)]


@asynccontextmanager
async def following(
    settings: Settings, follower: Follower | None = None, **more: Any
) -> AsyncIterator[tuple[Session, Follower]]:
    """A session and its consumer."""
    follower = follower or Follower()
    async with Session(replace(settings, **more), known=follower.known) as session:
        yield session, follower


def settings_for(conninfo: str, *tables: str, **more: Any) -> Settings:
    """A short-tempered session: tests do not wait for servers that never come."""
    return Settings(
        conninfo=conninfo,
        slot="follower",
        publication="follower",
        tables=tables,
        **{"patience_seconds": 40.0, "reconnect_seconds": 0.3, **more},
    )

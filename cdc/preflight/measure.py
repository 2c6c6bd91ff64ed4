"""Watches a database for a while: over a temporary slot where that can be, and by the server's own counts.

No table is altered. One without a replica identity is not published, since that would make its UPDATE fail: of it the
server's counts tell. The publication, and a slot that ends with its connection, are gone at the end, also by Ctrl-C.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, LiteralString

from cdc.limits import PREFLIGHT_TABLES_MAX
from cdc.passing import drop_publication, passing_name, sweep
from cdc.preflight.observation import Observation
from cdc.preflight.prediction import Measured, TableStatistics, report_of
from cdc.source.attempt import Arrived, Connected, Stopping
from cdc.source.catalog import find_tables, read_leaves, read_tables
from cdc.source.connections import Connection, connect_once, fetch
from cdc.source.errors import AccessRefused, CannotPublish, ServerUnfit, SourceError
from cdc.source.fragments import Fragment
from cdc.source.handshake import Settings
from cdc.source.lsn import parse_lsn
from cdc.source.publication import Mode, OldRow, TableState, unfit
from cdc.source.server_facts import read_facts
from cdc.source.session import Session
from cdc.watch import PATIENCE_SECONDS, shown_up_to

_STATISTICS: Final[LiteralString] = """
    SELECT s.relid::bigint AS oid, n_tup_ins AS inserts, n_tup_upd AS updates, n_tup_del AS deletes,
           greatest(c.reltuples, n_live_tup, 0)::bigint AS rows, pg_table_size(s.relid) AS bytes,
           CASE WHEN c.reltoastrelid <> 0 THEN pg_table_size(c.reltoastrelid) ELSE 0 END AS large_bytes,
           pg_has_role(c.relowner, 'USAGE') AS owned
    FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE c.relkind = 'r' AND c.relpersistence = 'p'
"""

Progress = Callable[[float], None]
"""Told how many seconds were watched."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for."""

    conninfo: str
    tables: tuple[str, ...]
    seconds: float
    slot: str
    publication: str
    mode: Mode = "managed"


class Clock:
    """How long is still to be watched."""

    def __init__(self, seconds: float, progress: Progress) -> None:
        self._seconds = seconds
        self._progress = progress
        self._began = time.monotonic()

    @property
    def left(self) -> float:
        """Seconds; tells the progress too."""
        passed = time.monotonic() - self._began
        self._progress(min(passed, self._seconds))
        return self._seconds - passed


async def preflight(wish: Wish, progress: Progress) -> dict[str, Any]:
    """Measure, and tell what follows from it."""
    control = await connect_once(wish.conninfo, "shapelog preflight")
    try:
        await sweep(control)
        tables = await _tables(control, wish.tables)
        measured = await _measured(control, wish, tables, progress)
        roots = (await read_tables(control, {table.root for table in tables})).values()
        names = wish.tables or [table.sql for table in roots]
        facts = await read_facts(control, wish.slot, wish.publication, names, wish.mode, sample_seconds=0)
        return report_of(measured, facts)
    finally:
        await control.close()


async def _tables(control: Connection, names: Iterable[str]) -> tuple[TableState, ...]:
    """What has rows: the tables that are named, with their partitions, or all of them, the most written first."""
    if not (wanted := tuple(names)):
        rows = await fetch(
            control, _STATISTICS + "ORDER BY n_tup_ins + n_tup_upd + n_tup_del DESC, 1 LIMIT %s", PREFLIGHT_TABLES_MAX
        )
        return tuple((await read_tables(control, [row["oid"] for row in rows])).values())
    found = await find_tables(control, wanted)
    if missing := [name for name, table in found.items() if table is None]:
        raise CannotPublish(f"no such table: {', '.join(missing)}", hint="Check the name, and quote it as in SQL.")
    tables: dict[int, TableState] = {}
    for table in found.values():
        assert table is not None, "checked above"
        if fault := unfit(table):
            raise CannotPublish(f"{table}: {fault.text}", hint="Name a table that has rows of its own.")
        parts = await read_leaves(control, table.oid) if table.kind == "p" else (table,)
        tables |= {part.oid: part for part in parts if unfit(part) is None}
    return tuple(tables.values())


async def _measured(control: Connection, wish: Wish, tables: tuple[TableState, ...], progress: Progress) -> Measured:
    owned = await _owned(control)
    fit = tuple(table for table in tables if table.can_identify and table.oid in owned)
    observation, why = (Observation(), "") if fit else (None, "there is no table that can be published by this role")
    before, began, wal = await _counts(control), time.monotonic(), await _wal_end(control)
    if observation is not None:
        try:
            async with _stream(wish.conninfo, fit) as session:
                await _connected(session)
                before, began, wal = await _counts(control), time.monotonic(), await _wal_end(control)
                await _watch(session, observation, Clock(wish.seconds, progress))
        except (AccessRefused, ServerUnfit, CannotPublish) as refused:
            observation, why = None, str(refused)
    clock = Clock(wish.seconds, progress)
    while observation is None and (left := clock.left) > 0:  # noqa: ASYNC110 - it waits for time itself
        await asyncio.sleep(min(left, 1.0))
    seconds, grown = time.monotonic() - began, await _wal_end(control) - wal
    after = await _counts(control)
    counted = {table.oid: _between(before.get(table.oid), after[table.oid]) for table in tables if table.oid in after}
    seen = tuple(table for table in tables if table.oid in counted)
    streamed = frozenset(table.oid for table in fit) if observation is not None else frozenset()
    return Measured(seconds, grown, seen, counted, observation, streamed, why)


async def _connected(session: Session) -> None:
    while not isinstance(await session.next(), Connected):
        pass


async def _watch(session: Session, observation: Observation, clock: Clock) -> None:
    """Until the time is over. What was seen is confirmed: the slot keeps nothing for long."""
    while (left := clock.left) > 0:
        try:
            async with asyncio.timeout(min(left, 0.5)):
                delivery = await session.next()
        except TimeoutError:
            continue
        match delivery:
            case Connected():
                observation.forget_open()
            case Stopping(reason=reason):
                raise SourceError(f"the server stops: {reason}", hint="Begin again when it is back.")
            case Arrived(attempt=attempt, event=event):
                if isinstance(event, Fragment):
                    observation.add(event)
                if (end := shown_up_to(delivery)) is not None:
                    session.confirm(attempt, end)


@asynccontextmanager
async def _stream(conninfo: str, tables: tuple[TableState, ...]) -> AsyncIterator[Session]:
    name = passing_name()
    settings = Settings(
        conninfo=conninfo,
        slot=name,
        publication=name,
        tables=tuple(table.sql for table in tables),
        temporary=True,
        patience_seconds=PATIENCE_SECONDS,
        old_row=OldRow.ANY,
    )
    try:
        async with Session(settings, known=lambda: None) as session:
            yield session
    finally:
        await drop_publication(conninfo, name)


async def _owned(control: Connection) -> set[int]:
    return {row["oid"] for row in await fetch(control, _STATISTICS) if row["owned"]}


async def _counts(control: Connection) -> dict[int, dict[str, Any]]:
    await fetch(control, "SELECT pg_stat_clear_snapshot()")
    return {row["oid"]: row for row in await fetch(control, _STATISTICS)}


def _between(before: dict[str, Any] | None, after: dict[str, Any]) -> TableStatistics:
    """What was counted meanwhile; a table that is new, or whose counts were reset, begins at 0."""
    grown = {
        name: max(after[name] - (before[name] if before is not None else 0), 0)
        for name in ("inserts", "updates", "deletes")
    }
    return TableStatistics(**grown, rows=after["rows"], bytes=after["bytes"], large_bytes=after["large_bytes"])


async def _wal_end(control: Connection) -> int:
    return parse_lsn((await fetch(control, "SELECT pg_current_wal_lsn() AS lsn"))[0]["lsn"])

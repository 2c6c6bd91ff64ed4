"""The watch: print what a slot delivers, live. Leaves nothing behind, unless a slot is named.

Tables are never altered here: one whose UPDATE would fail when published is left out, or refused if it was named.

Invariants:
    a named slot keeps its publication: without the one that it began with, its changes cannot be read, or are not sent
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson
import typer

from cdc.passing import drop_publication, passing_name, sweep, until_told
from cdc.source.attempt import Arrived, Connected, Delivery, Stopping
from cdc.source.catalog import find_tables, list_tables, read_leaves, read_publication
from cdc.source.connections import Connection, connect_once
from cdc.source.errors import CannotPublish
from cdc.source.fragments import Changes, Fragment, KeepAlive, Kind
from cdc.source.handshake import Settings
from cdc.source.lsn import Lsn, format_lsn
from cdc.source.publication import OldRow, TableState, unfit
from cdc.source.session import Session

PATIENCE_SECONDS = 20.0
"""A person watches: a server that is away for longer ends the watch."""

VALUE_CHARACTERS_MAX = 40
"""Of a value in a line for people; JSON lines have all of it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to watch, and how to print it."""

    conninfo: str
    tables: tuple[str, ...]
    slot: str | None
    publication: str | None
    as_json: bool
    count: int | None


async def follow_until_told(request: Request, out: TextIO) -> int:
    """Watch until enough has come, or a signal; the signal's number or 0. Cleans up before it returns."""
    return await until_told(follow(request, out))


async def follow(request: Request, out: TextIO) -> None:
    """Watch until enough has come."""
    async with _publication(request) as settings:
        left = request.count
        async with Session(settings, known=lambda: None) as session:
            end: Lsn | None = None
            while left is None or left > 0:
                delivery = await session.next()
                if note := _note(delivery, settings):
                    typer.echo(note, err=True)
                if isinstance(delivery, Arrived):
                    for line in lines(delivery, as_json=request.as_json):
                        out.write(line + "\n")
                        left = None if left is None else left - 1
                        if left == 0:
                            break
                    out.flush()
                    end = shown_up_to(delivery) or end
                    if end is not None and left != 0:
                        session.confirm(delivery.attempt, end)


@asynccontextmanager
async def _publication(request: Request) -> AsyncIterator[Settings]:
    """Settings, and a publication for as long as the watch lives, unless something that is named needs it longer."""
    passing = passing_name()
    settings = Settings(
        conninfo=request.conninfo,
        slot=request.slot or passing,
        publication=request.publication or request.slot or passing,
        mode="manual",
        tables=request.tables,
        temporary=request.slot is None,
        adopt=request.slot is not None,
        patience_seconds=PATIENCE_SECONDS,
        old_row=OldRow.ANY,
    )
    if request.publication is not None:
        yield settings
        return
    control = await connect_once(request.conninfo, "shapelog watch")
    try:
        await sweep(control)
        if request.slot is None or (await read_publication(control, settings.publication)).oid is None:
            tables = await _choose(control, request.tables)
            settings = replace(settings, mode="managed", tables=tuple(table.sql for table in tables))
    finally:
        await control.close()
    try:
        yield settings
    finally:
        if request.slot is None:
            await drop_publication(settings.conninfo, settings.publication)


async def _choose(control: Connection, names: tuple[str, ...]) -> list[TableState]:
    if not names:
        listed = [table for table in await list_tables(control) if unfit(table) is None]
        fit = [table for table in listed if await _keyless_part(control, table) is None]
        left_out = sorted(str(table) for table in listed if table not in fit)
        if left_out:
            typer.echo(f"left out, since publishing them would make their UPDATE fail: {', '.join(left_out)}", err=True)
        return fit
    found = await find_tables(control, names)
    missing = [name for name, table in found.items() if table is None]
    if missing:
        raise CannotPublish(f"no such table: {', '.join(missing)}", hint="Check the name, and quote it as in SQL.")
    tables = [table for table in found.values() if table is not None]
    for table in tables:
        if unfit(table) is None and (part := await _keyless_part(control, table)):
            raise CannotPublish(
                f"{part} has no replica identity: while it is published, its UPDATE and DELETE fail",
                hint=f"Run ALTER TABLE {part.sql} REPLICA IDENTITY FULL; and watch again.",
            )
    return tables


async def _keyless_part(control: Connection, table: TableState) -> TableState | None:
    """The table, or a partition of it, whose rows cannot be told apart once it is published."""
    leaves = await read_leaves(control, table.oid) if table.kind == "p" else (table,)
    return next((part for part in leaves if not part.can_identify), None)


def _note(delivery: Delivery, settings: Settings) -> str | None:
    match delivery:
        case Connected(attempt=1, start=start):
            kept = "" if settings.temporary else f", and what is shown leaves the slot {settings.slot}"
            return f"watching from {format_lsn(start)}{kept}; Ctrl-C ends it"
        case Connected(start=start) if settings.temporary:
            return f"connected again: a new temporary slot begins at {format_lsn(start)}; what came before is not shown"
        case Connected(start=start):
            return f"connected again, from {format_lsn(start)}"
        case Stopping(reason=reason):
            return f"the server stops: {reason}"
        case _:
            return None


def shown_up_to(arrived: Arrived) -> Lsn | None:
    """What may be confirmed once this was shown: only ever the end of a transaction, or of the WAL between two."""
    match arrived.event:
        case Fragment() as fragment if fragment.ended_count:
            return Lsn(int(fragment.transactions.end_lsn[fragment.ended_count - 1]))
        case _:
            return None


def lines(arrived: Arrived, *, as_json: bool) -> Iterator[str]:
    """A line for each change, in the order of the transactions."""
    match arrived.event:
        case Fragment() as fragment:
            for change in sorted(changes_of(fragment), key=lambda change: (change["tx"], change["op"])):
                yield orjson.dumps(change).decode() if as_json else _line(change)
        case KeepAlive():
            return


def changes_of(fragment: Fragment) -> Iterator[dict[str, Any]]:
    """The changes as dictionaries: for people's eyes, so one by one is fast enough."""
    transactions = fragment.transactions
    for changes in fragment.changes:
        for row, index in zip(changes.rows.to_pylist(), changes.transaction.tolist(), strict=True):
            at = datetime.fromtimestamp(int(transactions.commit_time[index]) / 1_000_000, UTC)
            kind = Kind(row["kind"])
            absent = _absent(changes, row["absent"])
            new = {name: value for name, value in (row["new"] or {}).items() if name not in absent}
            yield {
                "tx": row["tx"],
                "op": row["op"],
                "xid": int(transactions.xid[index]),
                "committed": at.isoformat(),
                "table": str(changes.relation),
                "kind": kind.name.lower(),
                "new": None if kind in (Kind.DELETE, Kind.TRUNCATE) else new,
                "old": new if kind is Kind.DELETE else row.get("old"),
                "not_sent": absent,
            }


def _absent(changes: Changes, bitmap: bytes | None) -> list[str]:
    names = [column.name for column in changes.relation.columns]
    return [name for i, name in enumerate(names) if bitmap and bitmap[i // 8] >> i % 8 & 1]


def _line(change: dict[str, Any]) -> str:
    values = change["new"] if change["new"] is not None else change["old"]
    shown = "  ".join(f"{name}={_short(value)}" for name, value in (values or {}).items())
    at = change["committed"][11:23]
    return f"{at}  {format_lsn(change['tx'])}  {change['kind']:<8}  {change['table']}  {shown}".rstrip()


def _short(value: str | None) -> str:
    if value is None:
        return "NULL"
    return repr(value if len(value) <= VALUE_CHARACTERS_MAX else value[: VALUE_CHARACTERS_MAX - 1] + "\u2026")

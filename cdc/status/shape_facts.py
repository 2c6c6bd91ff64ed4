"""What is told of a shape, as JSON: what it is, how far it is, how much it has."""

from datetime import UTC, datetime
from typing import Any, Final

from shapes.household import Household
from shapes.nursery import Awaited, Order
from shapes.registry import Entry
from storage.catalog_records import Life
from storage.errors import StorageError, UnknownLog
from storage.log_counts import LogCounts, counts_of
from storage.store import Store

_MICROSECONDS: Final = 1_000_000

STATES = {Life.BORN: "copying", Life.READY: "ready", Life.REBASED: "rebased", Life.ENDED: "ended"}


def shape_facts(
    entry: Entry, counts: LogCounts | None, readers: int | None = None, changes_per_second: float | None = None
) -> dict[str, Any]:
    """One shape. Without counts, nobody has looked into its log; its readers and its rate only its server knows."""
    definition, shape = entry.definition, entry.shape
    return {
        "handle": entry.handle,
        "name": shape.name,
        "table": f"{definition.schema}.{definition.table}",
        "where": definition.where,
        "columns": None if definition.selects_all else [column.name for column in definition.columns],
        "key": list(definition.key),
        "replica": definition.replica.value,
        "log_mode": definition.log.value,
        "state": STATES[shape.life],
        "reason": shape.reason,
        "successor": shape.successor,
        "log": entry.log,
        "visible": None if counts is None else str(counts.visible),
        "durable": None if counts is None else str(counts.durable),
        "rows": None if counts is None else counts.rows,
        "bytes": None if counts is None else counts.bytes,
        "readers": readers,
        "changes_per_second": changes_per_second,
        "fault": None if counts is None or counts.fault is None else str(counts.fault),
    }


def counted(store: Store, entry: Entry) -> LogCounts | None:
    """Look into its log; None if that cannot be done, or the shape has ended. Reads files: call it on a thread."""
    if entry.shape.life is Life.ENDED:
        return None
    try:
        return counts_of(store, entry.log)
    except (UnknownLog, StorageError):
        return None


def birth_facts(order: Order) -> dict[str, Any]:
    """A birth that has not ended."""
    status, definition = order.status, order.definition
    return {
        "name": order.name,
        "table": f"{definition.schema}.{definition.table}",
        "where": definition.where,
        "handle": None if order.entry is None else order.entry.handle,
        "step": status.step.value,
        "attempt": status.attempt,
        "reason": status.reason,
        "since": moment(order.told_at),
        "waits_for": [str(holder) for holder in status.holders],
        "mend": [holder.mend for holder in status.holders],
        "rows": 0 if status.progress is None else status.progress.rows,
        "bytes": 0 if status.progress is None else status.progress.wire_bytes,
        "share": None if status.progress is None else status.progress.share,
    }


def awaited_facts(awaited: Awaited) -> dict[str, Any]:
    """A name whose successor could not be born yet: told like a birth, since it will be one."""
    definition = awaited.definition
    return {
        "name": awaited.name,
        "table": f"{definition.schema}.{definition.table}",
        "where": definition.where,
        "handle": None,
        "step": "waiting",
        "attempt": awaited.attempts,
        "reason": f"{awaited.reason} It is tried again at {moment(awaited.again_at)}.",
        "since": moment(awaited.since),
        "waits_for": [],
        "mend": [],
        "rows": 0,
        "bytes": 0,
        "share": None,
    }


def moment(microseconds: int) -> str:
    """A time of day, as JSON has it."""
    at = datetime.fromtimestamp(microseconds / _MICROSECONDS, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def name_of(house: Household, number: int) -> str:
    """What people call a shape that is fed, by its number there."""
    member = house.collector.members.get(number)
    if member is None:
        return "(gone)"
    entry = None if member.handle is None else house.registry.find(member.handle)
    return (entry and entry.shape.name) or member.handle or str(member.definition)

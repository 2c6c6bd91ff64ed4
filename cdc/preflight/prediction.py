"""From what was measured to what it will cost: disk, WAL, memory; and what is missing. Pure.

Invariants:
    every number is one that was measured, times a time; what could not be measured is None
    a statement is printed once, in the order in which it is to be run
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc.limits import PROGRAM_MEMORY_BYTES
from cdc.preflight.observation import Observation, TableTally
from cdc.source.checks import run_checks
from cdc.source.facts import Facts, Finding, Level
from cdc.source.publication import TableState, quote
from storage.limits import BLOCK_CACHE_BYTES_MAX, BUFFER_BYTES_MAX, BUFFER_LOG_BYTES_MAX, MIB

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
OUTAGE_HOURS: Final = 8
"""What a slot should survive: from the evening to the morning."""

ROLE: Final = "shapelog"
"""A name for a role that does not exist yet."""

WAL_HEADROOM: Final = 2
"""Times what was measured: the busiest hour is not the one that was watched."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """What the server counts of a table; the counts are of the time that was watched."""

    inserts: int
    updates: int
    deletes: int
    rows: int
    """As the planner thinks."""
    bytes: int
    """With large values, without indexes."""
    large_bytes: int
    """Kept out of line."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was measured."""

    seconds: float
    """That were watched."""
    wal_bytes: int
    tables: tuple[TableState, ...]
    """Ordinary ones and partitions: what has rows of its own."""
    statistics: dict[int, TableStatistics]
    observation: Observation | None
    """None: there was no stream; `why_no_stream` says why."""
    streamed: frozenset[int]
    """Tables of the stream; of the others there are only statistics."""
    why_no_stream: str = ""


def report_of(measured: Measured, facts: Facts) -> dict[str, Any]:
    """All of it, as JSON; the checks of the doctor are among it, at the rate of WAL that was measured."""
    facts = replace(facts, wal_bytes_per_second=max(facts.wal_bytes_per_second, measured.wal_bytes / measured.seconds))
    findings = run_checks(facts)
    tables = [_table(table, measured) for table in measured.tables]
    tables.sort(key=lambda one: (-(one["bytes_per_second"] or 0), one["table"]))
    observation = measured.observation
    sizes = None if observation is None else observation.sizes
    return {
        "seconds": round(measured.seconds, 1),
        "streamed": observation is not None,
        "why_not_streamed": measured.why_no_stream or None,
        "transactions": None
        if sizes is None
        else {
            "count": sizes.count,
            "per_second": _rate(sizes.count, measured.seconds),
            "p50_bytes": sizes.quantile(0.5),
            "p99_bytes": sizes.quantile(0.99),
            "largest_bytes": sizes.largest_bytes,
            "largest_changes": sizes.largest_changes,
        },
        "tables": tables,
        "predicted": _predicted(measured, facts, tables),
        "findings": [
            {"check": one.check, "level": one.level.value, "text": one.text, "mend": list(one.mend)}
            for one in findings
            if one.level is not Level.OK
        ],
        "sql": _statements(measured, facts, findings),
    }


def _table(table: TableState, measured: Measured) -> dict[str, Any]:
    counted = measured.statistics[table.oid]
    tally = None
    if measured.observation is not None and table.oid in measured.streamed:
        tally = measured.observation.tables.get(table.oid, TableTally())
    changes = counted.inserts + counted.updates + counted.deletes if tally is None else tally.changes
    size = _estimated_bytes(counted) if tally is None else tally.bytes
    return {
        "table": str(table),
        "streamed": tally is not None,
        "rows": counted.rows,
        "bytes": counted.bytes,
        "toast_share": _share(counted.large_bytes, counted.bytes),
        "inserts": counted.inserts if tally is None else tally.inserts,
        "updates": counted.updates if tally is None else tally.updates,
        "deletes": counted.deletes if tally is None else tally.deletes,
        "truncates": None if tally is None else tally.truncates,
        "changes_per_second": _rate(changes, measured.seconds),
        "bytes_per_second": _rate(size, measured.seconds),
        "large_share": None if tally is None else _share(tally.large_bytes, tally.bytes),
        "updates_unsent": None if tally is None else tally.updates_unsent,
        "replica_identity": _IDENTITIES[table.replica_identity] if table.can_identify else "nothing",
        "writes_without_identity": 0 if table.can_identify else counted.updates + counted.deletes,
    }


_IDENTITIES: Final = {"d": "key", "f": "full", "i": "index", "n": "nothing"}


def _estimated_bytes(counted: TableStatistics) -> int:
    """Of changes that nobody saw: as many rows as there were changes, of the table's average size."""
    changes = counted.inserts + counted.updates + counted.deletes
    return round(changes * counted.bytes / counted.rows) if counted.rows > 0 else 0


def _predicted(measured: Measured, facts: Facts, tables: list[dict[str, Any]]) -> dict[str, Any]:
    log_rate = sum(one["bytes_per_second"] for one in tables)
    wal_rate = measured.wal_bytes / measured.seconds
    limit_mib = facts.number("max_slot_wal_keep_size")
    largest = 0 if measured.observation is None else measured.observation.sizes.largest_bytes
    # What is being taken in and what is being written are both in memory; one transaction's rows up to a log's bound.
    buffers = min(2 * (min(largest, BUFFER_LOG_BYTES_MAX) + round(log_rate)), BUFFER_BYTES_MAX)
    return {
        "log_bytes_per_day": round(log_rate * DAY),
        "first_copy_bytes": sum(one["bytes"] for one in tables),
        "wal_bytes_per_second": round(wal_rate, 1),
        "wal_kept_after_an_hour_bytes": round(wal_rate * HOUR),
        "slot_lost_after_hours": round(limit_mib * MIB / (wal_rate * HOUR), 1) if limit_mib >= 0 and wal_rate else None,
        "memory_bytes": PROGRAM_MEMORY_BYTES + buffers,
        "memory_bytes_max": PROGRAM_MEMORY_BYTES + BUFFER_BYTES_MAX + BLOCK_CACHE_BYTES_MAX,
    }


def _statements(measured: Measured, facts: Facts, findings: Iterable[Finding]) -> list[str]:
    found = dict.fromkeys(statement for finding in findings for statement in finding.mend)
    if facts.role.superuser and facts.wanted:
        role, tables = quote(ROLE), ", ".join(table.sql for table in facts.wanted)
        schemas = ", ".join(sorted({quote(table.schema) for table in facts.wanted}))
        found |= dict.fromkeys(
            (
                "-- a role of its own in place of a superuser, which is all that `shapelog serve --manual` needs:",
                f"CREATE ROLE {role} LOGIN REPLICATION;",
                f"GRANT USAGE ON SCHEMA {schemas} TO {role};",
                f"GRANT SELECT ON {tables} TO {role};",
            )
        )
    if facts.number("max_slot_wal_keep_size") < 0:
        wanted = max(round(measured.wal_bytes / measured.seconds * HOUR * OUTAGE_HOURS * WAL_HEADROOM / MIB), 1024)
        found |= dict.fromkeys(
            (
                f"-- so that the slot cannot fill the server's disk: {OUTAGE_HOURS} hours, {WAL_HEADROOM} times over",
                f"ALTER SYSTEM SET max_slot_wal_keep_size = '{wanted}MB';",
                "SELECT pg_reload_conf();",
            )
        )
    return list(found)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 3)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None

"""What is checked before anything is followed: one list, for `shapelog doctor` and for the start. Pure.

A check is a function from facts to findings. The facts are read once, in `server_facts.py`, so a check can be shown
any server in a test.

Invariants:
    every check of CHECKS says something: a finding, or that all is well
    a finding that is not OK or INFO has a statement that mends it, or says that none does
    no check asks the server, and no finding shows a query, a password or a row
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from cdc.source.facts import Facts, Finding, Level
from cdc.source.limits import CLOCK_SKEW_SECONDS_MAX, LONG_TRANSACTION_SECONDS, SLOT_UNREAD_BYTES, WAL_ROOM_HOURS_MIN
from cdc.source.publication import (
    GENERATED_SINCE,
    OldRow,
    TableState,
    demanded,
    is_published,
    plan,
    quote,
    unfit,
)
from cdc.source.server_bugs import BUGS

SUPPORTED_MIN: Final = 140_000
TESTED_MAX: Final = 18
HOUR_SECONDS: Final = 3600
MIB: Final = 1024 * 1024

Check = Callable[[Facts], Iterator[Finding]]


def check_version(facts: Facts) -> Iterator[Finding]:
    """Versions that work, and minor releases with known faults."""
    if facts.version < SUPPORTED_MIN:
        yield Finding(
            "version",
            Level.FAULT,
            f"Postgres {facts.major} is too old; 14 is the first that will do",
            ("-- install a supported Postgres: no statement mends this",),
        )
        return
    for bug in BUGS:
        if bug.is_in(facts.version):
            _, good = bug.releases[facts.major]
            yield Finding(
                "version",
                Level.WARNING,
                f"Postgres {facts.major}.{facts.minor}: {bug.text} ({bug.source})",
                (f"-- install Postgres {facts.major}.{good} or later: no statement mends this",),
            )
    if facts.major > TESTED_MAX:
        yield Finding("version", Level.INFO, f"Postgres {facts.major} is newer than what was tested, {TESTED_MAX}")


def check_wal_level(facts: Facts) -> Iterator[Finding]:
    """Without it there is no logical decoding."""
    level = facts.settings["wal_level"]
    if level != "logical":
        yield Finding(
            "wal_level",
            Level.FAULT,
            f"wal_level is {level}, and must be logical; the change needs a restart of the server",
            ("ALTER SYSTEM SET wal_level = 'logical';",),
        )


def check_recovery(facts: Facts) -> Iterator[Finding]:
    """A standby cannot be written to, so nothing can be published on it."""
    if facts.in_recovery:
        yield Finding(
            "recovery",
            Level.FAULT,
            "this server is a standby",
            ("-- connect to the primary, or add target_session_attrs=read-write to the connection string",),
        )


def check_room(facts: Facts) -> Iterator[Finding]:
    """One slot and one walsender are ours; a second walsender while we reconnect."""
    slots_max, senders_max = facts.number("max_replication_slots"), facts.number("max_wal_senders")
    if facts.slot is None and facts.slots_used >= slots_max:
        yield Finding(
            "slots_left",
            Level.FAULT,
            f"all {slots_max} replication slots are taken; the change needs a restart, dropping an unused one does not",
            (
                "SELECT slot_name, active FROM pg_replication_slots;",
                f"ALTER SYSTEM SET max_replication_slots = {2 * slots_max};",
            ),
        )
    used = facts.walsenders_used - (facts.slot is not None and facts.slot.active_pid is not None)
    if used >= senders_max:
        yield Finding(
            "walsenders_left",
            Level.FAULT,
            f"all {senders_max} walsenders are in use; the change needs a restart",
            (f"ALTER SYSTEM SET max_wal_senders = {2 * senders_max};",),
        )


def check_role(facts: Facts) -> Iterator[Finding]:
    """What the role may do."""
    role, name = facts.role, quote(facts.role.name)
    if not (role.superuser or role.replication):
        yield Finding(
            "role", Level.FAULT, f"the role {role.name} may not replicate", (f"ALTER ROLE {name} REPLICATION;",)
        )
    if facts.mode == "managed" and facts.publication.oid is None and not (role.superuser or role.creates_in_database):
        yield Finding(
            "role",
            Level.FAULT,
            f"the role {role.name} may not create a publication",
            (f"GRANT CREATE ON DATABASE {quote(facts.database)} TO {name};",),
        )
    if not role.superuser:
        for table in facts.wanted:
            if table.oid not in facts.readable:
                grant = f"GRANT SELECT ON {table.sql} TO {name};"
                yield Finding("role", Level.FAULT, f"the role {role.name} may not read {table}", (grant,))
            if table.row_security and not role.bypasses_row_security:
                yield Finding(
                    "role",
                    Level.WARNING,
                    f"row security hides rows of {table} from the first copy, and nothing from the stream",
                    (f"ALTER ROLE {name} BYPASSRLS;",),
                )


def check_tables(facts: Facts) -> Iterator[Finding]:
    """Tables that cannot be followed, and those that we may not prepare."""
    for name in facts.unknown:
        yield Finding(
            "tables", Level.FAULT, f"there is no table {name}", ("-- check the name, and quote it as in SQL",)
        )
    for table in (part for wanted in facts.wanted for part in _whole(facts, wanted)):
        if fault := unfit(table):
            logged = (f"ALTER TABLE {table.sql} SET LOGGED;",) if table.persistence == "u" else ()
            mend = logged or ("-- choose another table: no statement mends this",)
            yield Finding("tables", Level.FAULT, f"{table}: {fault.text}", mend)


def _whole(facts: Facts, table: TableState) -> tuple[TableState, ...]:
    """A table, and the partitions that have its rows."""
    return (table, *facts.leaves.get(table.oid, ()))


def check_publication(facts: Facts) -> Iterator[Finding]:
    """The statements that are missing: run by us in managed mode, by an owner in manual mode."""
    fit = [table for table in facts.wanted if not any(map(unfit, _whole(facts, table)))]
    old_row = demanded(OldRow.LONG_VALUES, facts.mode)
    todo = plan(facts.publication, fit, facts.leaves, facts.version, old_row=old_row)
    for fault in todo.faults:
        yield Finding(
            "publication",
            Level.FAULT,
            f"{fault.table}: {fault.text}",
            (f"-- publish it in {quote(facts.publication.name)} without a filter and a column list",),
        )
    for step in todo.steps:
        ours = facts.role.superuser or step.table is None or step.table in facts.owned
        if facts.mode == "managed" and ours:
            yield Finding("publication", Level.INFO, "will be run when the table is first followed", (step.sql,))
        else:
            whose = "in manual mode it is for you to run" if ours else f"{facts.role.name} does not own the table"
            yield Finding("publication", Level.FAULT, f"something is missing; {whose}", (step.sql,))


def check_conditions(facts: Facts) -> Iterator[Finding]:
    """Tables that stay as they are until a shape needs whole rows: nobody knows yet whether there will be one."""
    fit = [table for table in facts.wanted if not any(map(unfit, _whole(facts, table)))]
    plain, whole = (
        {step.alters for step in plan(facts.publication, fit, facts.leaves, facts.version, old_row=old_row).steps}
        for old_row in (demanded(OldRow.LONG_VALUES, facts.mode), OldRow.WHOLE)
    )
    if missing := ", ".join(sorted(name for name in whole - plain if name is not None)):
        whose = "they get it with the first such shape" if facts.mode == "managed" else "for you to set"
        text = f"shapes with a condition or replica=full need REPLICA IDENTITY FULL, {whose}: {missing}"
        yield Finding("conditions", Level.INFO, text)


def check_published_elsewhere(facts: Facts) -> Iterator[Finding]:
    """Replica identities that make the application's own UPDATE and DELETE fail, once published."""
    for table in facts.wanted:
        for part in _whole(facts, table):
            if part.kind == "r" and not part.can_identify and is_published(facts.publication, part):
                yield Finding(
                    "replica_identity",
                    Level.FAULT,
                    f"{part} is published without an identity: every UPDATE and DELETE of it fails now",
                    (f"ALTER TABLE {part.sql} REPLICA IDENTITY FULL;",),
                )


def check_generated_columns(facts: Facts) -> Iterator[Finding]:
    """Generated columns do not travel, unless Postgres 18 is told so; with FULL their absence makes writes fail."""
    for table in facts.wanted:
        if not table.generated_columns:
            continue
        columns = ", ".join(table.generated_columns)
        if facts.version < GENERATED_SINCE:
            yield Finding("generated_columns", Level.INFO, f"{table}: {columns} will not be sent; Postgres 18 can")
        elif facts.publication.generated == "n":
            yield Finding(
                "generated_columns",
                Level.WARNING,
                f"{table}: {columns} not published, and so with REPLICA IDENTITY FULL every UPDATE and DELETE fails",
                (f"ALTER PUBLICATION {quote(facts.publication.name)} SET (publish_generated_columns = stored);",),
            )


def check_wal_room(facts: Facts) -> Iterator[Finding]:
    """How long an outage the slot survives, at the rate at which WAL is written."""
    limit_mib, rate = facts.number("max_slot_wal_keep_size"), facts.wal_bytes_per_second
    written = f"WAL grows by {rate / MIB * HOUR_SECONDS:,.0f} MB an hour"
    if limit_mib < 0:
        yield Finding(
            "wal_room",
            Level.INFO,
            f"max_slot_wal_keep_size is unlimited: the slot is never lost, but can fill the server's disk; {written}",
        )
        return
    hours = limit_mib * MIB / rate / HOUR_SECONDS if rate > 0 else float("inf")
    if hours < WAL_ROOM_HOURS_MIN:
        wanted_mib = max(limit_mib * 2, round(rate * HOUR_SECONDS * WAL_ROOM_HOURS_MIN * 2 / MIB))
        yield Finding(
            "wal_room",
            Level.WARNING,
            f"the slot would be lost after {hours:.1f} hours without us: max_slot_wal_keep_size is {limit_mib} MB, "
            f"and {written}",
            (f"ALTER SYSTEM SET max_slot_wal_keep_size = '{wanted_mib}MB';", "SELECT pg_reload_conf();"),
        )


def check_slot(facts: Facts) -> Iterator[Finding]:
    """The slot itself, and what it costs."""
    slot = facts.slot
    if slot is None:
        yield Finding("slot", Level.INFO, f"there is no slot {facts.slot_name!r} yet; it is made at the first start")
    elif slot.loss is not None:
        yield Finding(
            "slot",
            Level.FAULT,
            f"the slot {slot.name!r} is lost: {slot.loss}",
            (f"SELECT pg_drop_replication_slot('{slot.name}');", "-- then: shapelog recover --resnapshot"),
        )
    else:
        kept = facts.retained_bytes or 0
        told = f"the slot {slot.name!r} keeps {kept / MIB:,.0f} MB of WAL"
        if slot.active_pid is not None:
            yield Finding("slot", Level.INFO, f"{told}; read by process {slot.active_pid}")
        elif kept < SLOT_UNREAD_BYTES:
            yield Finding("slot", Level.INFO, f"{told}; nobody reads it")
        else:
            yield Finding(
                "slot",
                Level.WARNING,
                f"{told}, and more as long as nobody reads it",
                (
                    "-- start `shapelog serve`; or, if no server will ever read it again:",
                    f"SELECT pg_drop_replication_slot('{slot.name}');",
                ),
            )


def check_transactions(facts: Facts) -> Iterator[Finding]:
    """Long transactions keep a slot's creation waiting, and WAL from being forgotten."""
    for holder in facts.transactions:
        if (holder.transaction_seconds or 0) > LONG_TRANSACTION_SECONDS or holder.prepared is not None:
            yield Finding(
                "transactions",
                Level.WARNING,
                f"a new slot waits for {holder}, and WAL is kept from its start on",
                (holder.mend,),
            )


def check_timeout(facts: Facts) -> Iterator[Finding]:
    """A timeout of 0 means that a dead reader keeps its slot until the network says so."""
    if facts.number("wal_sender_timeout") == 0:
        yield Finding(
            "wal_sender_timeout",
            Level.WARNING,
            "wal_sender_timeout is 0: the server does not notice a reader that is gone, and its slot stays taken",
            ("ALTER SYSTEM RESET wal_sender_timeout;", "SELECT pg_reload_conf();"),
        )


def check_encoding(facts: Facts) -> Iterator[Finding]:
    """Text arrives as UTF-8, if the server knows what it has."""
    if facts.settings["server_encoding"] == "SQL_ASCII":
        yield Finding(
            "encoding",
            Level.WARNING,
            "the database's encoding is SQL_ASCII: bytes that are not UTF-8 stop the stream",
            ("-- dump the database and restore it into one with ENCODING 'UTF8': no statement mends this",),
        )


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Ages and lags compare the two clocks."""
    if abs(facts.clock_skew_seconds) > CLOCK_SKEW_SECONDS_MAX:
        yield Finding(
            "clock",
            Level.WARNING,
            f"the server's clock and ours are {abs(facts.clock_skew_seconds):.0f} s apart: ages and lags will mislead",
            ("-- set both clocks by NTP: no statement mends this",),
        )


CHECKS: Final[Mapping[str, Check]] = {
    "version": check_version,
    "recovery": check_recovery,
    "wal_level": check_wal_level,
    "room": check_room,
    "role": check_role,
    "tables": check_tables,
    "publication": check_publication,
    "conditions": check_conditions,
    "replica_identity": check_published_elsewhere,
    "generated_columns": check_generated_columns,
    "slot": check_slot,
    "wal_room": check_wal_room,
    "wal_sender_timeout": check_timeout,
    "transactions": check_transactions,
    "encoding": check_encoding,
    "clock": check_clock,
}


START_UP: Final = frozenset({"version", "wal_level", "role"})
"""Checks whose faults end a start at once. The others are met again where they matter: the slot and the publication are
judged on each connection, and what is taken now may be free in a moment."""


def run_checks(facts: Facts) -> list[Finding]:
    """All findings, in the order of the list; a check that found nothing says so."""
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        findings += list(check(facts)) or [Finding(name, Level.OK, "")]
    return findings


def is_fit(findings: list[Finding]) -> bool:
    """Whether following can start."""
    return all(finding.level is not Level.FAULT for finding in findings)

"""Logs, as they are read, beside what they must hold."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cdc.simulate.oracle import Expectation, Rows, Told, Violation
from cdc.simulate.server import Server
from cdc.simulate.tables import Key
from shapes.definition import Definition
from storage.bases import Base
from storage.catalog_records import Shape
from storage.errors import Refetch
from storage.ledger import folded_ranges
from storage.offset import OP_INFINITE, LogOffset
from storage.rows import Kind
from storage.store_reader import StoreReader

Ranges = list[tuple[LogOffset, LogOffset]]
"""From the first row that was folded away to the one that it was folded into."""


def base_of(reader: StoreReader, shape: Shape) -> Base:
    """The log's newest base; the shape's own, or one that is complete and not recorded yet."""
    bases = [one for one in reader.bases(shape.log) if one.is_complete]
    if shape.base not in {one.number for one in bases}:
        raise Violation(f"{shape.handle}: its base {shape.base} is not there")
    return bases[-1]


def compare(reader: StoreReader, shape: Shape, expected: Expectation, visible: LogOffset) -> None:
    """Raise `Violation` where a log, read from its base on, is not what it must be up to `visible`."""
    expected.check_end(visible.tx)
    if expected.has_moved:
        return
    base = base_of(reader, shape)
    where = f"log {shape.log} ({shape.handle}, {expected.definition}) up to {visible}"
    rows = _base_rows(reader, shape.log, base, expected)
    floor = base.floor
    if base.last.is_snapshot:
        same_rows(f"{where}: base", rows, expected.base())
    elif not expected.is_unsound_at(floor.tx):
        same_rows(f"{where}: base up to {floor}", rows, expected.table_at(floor))
    found = list(_log_rows(reader, shape.log, floor, expected.definition))
    whole = LogOffset(floor.tx, OP_INFINITE) if expected.server.is_forgetful else floor
    wanted = [row for row in expected.up_to(visible.tx) if row.at > whole]
    _same_told(where, found, wanted, expected, folded_ranges_of(reader, shape.log))
    if expected.is_unsound_at(visible.tx):
        return
    for told in found:
        apply(where, rows, told, expected.definition)
    if floor.tx <= visible.tx:
        same_rows(f"{where}: folded", rows, expected.table_at(visible))


def follow(reader: StoreReader, shape: Shape, expected: Expectation, after: LogOffset, visible: LogOffset) -> None:
    """Raise `Violation` where what came after an offset is not what it must be, for a reader who goes on from there."""
    expected.check_end(visible.tx)
    if expected.has_moved:
        return
    where = f"log {shape.log} ({shape.handle}, {expected.definition}) from {after} up to {visible}"
    try:
        found = list(_log_rows(reader, shape.log, after, expected.definition))
    except Refetch:
        if base_of(reader, shape).floor <= after:
            raise Violation(f"{where}: the rows that its base does not have have gone") from None
        compare(reader, shape, expected, visible)
        return
    wanted = [row for row in expected.up_to(visible.tx) if row.at.tx > after.tx]
    _same_told(where, found, wanted, expected, folded_ranges_of(reader, shape.log))


def _same_told(where: str, found: list[Told], wanted: list[Told], expected: Expectation, folded: Ranges) -> None:
    """Raise `Violation` where the rows are not the same, or are not what a compaction may make of them."""
    if folded:
        wanted = _compacted(where, {row.at: row for row in found}, wanted, expected, folded)
    _same(where, _texts(found, expected.server), _texts(wanted, expected.server))


def _compacted(
    where: str, found: dict[LogOffset, Told], wanted: list[Told], expected: Expectation, folded: Ranges
) -> list[Told]:
    """The rows as they must be where updates of one key were made one: the last of them, with what all of them sent."""
    pending: dict[Key, dict[str, str | None]] = {}
    rows = []
    for row in wanted:
        values = dict(row.values)
        key = () if row.kind is Kind.TRUNCATE else tuple(values[name] for name in expected.definition.key)
        is_folded = row.kind is Kind.UPDATE and any(begin <= row.at <= end for begin, end in folded)
        if is_folded and row.at not in found:
            pending[key] = {**pending.get(key, {}), **values}
            continue
        before = pending.pop(key, None)
        if row.kind is Kind.TRUNCATE and pending:
            before = next(iter(pending.values()))
        if before is not None and not is_folded:
            raise Violation(f"{where}: updates were folded over {row}")
        if is_folded:
            now = found[row.at]
            if {**dict(now.values), **(before or {}), **values} != dict(now.values):
                raise Violation(f"{where}: {row}, with {before} of updates before, became {now}")
            row = now  # noqa: PLW2901 - it is compared: it may have values of updates that this reader has had
        rows.append(row)
    if pending:
        raise Violation(f"{where}: lost the last updates of {[*pending]}")
    return rows


def folded_ranges_of(reader: StoreReader, log: int) -> Ranges:
    """Where rows of a log were folded by a compaction."""
    store = reader._store  # noqa: SLF001 - who reads in the process need not know, but who compares must
    files = store.log(log).files
    if not any(segment.name.generation for segment in files.segments):
        return []
    ledger = folded_ranges(store.disk, files).to_pylist()
    return [(LogOffset(row["from_tx"], row["from_op"]), LogOffset(row["to_tx"], row["to_op"])) for row in ledger]


def _texts(rows: list[Told], server: Server) -> list[str]:
    """Rows as texts. Where a server numbers changes now so, now otherwise, only their order counts."""
    if not server.is_forgetful:
        return list(map(str, rows))
    counts: Counter[int] = Counter()
    texts = []
    for row in rows:
        counts[row.at.tx] += 1
        texts.append(str(replace(row, at=LogOffset(row.at.tx, counts[row.at.tx]))))
    return texts


def _base_rows(reader: StoreReader, log: int, base: Base, expected: Expectation) -> Rows:
    rows: Rows = {}
    number = 0
    while (chunk := reader.read_chunk(log, base.number, number)) is not None:
        for row in chunk.column("new").to_pylist():
            key = tuple(row[name] for name in expected.definition.key)
            if key in rows:
                raise Violation(f"log {log}: {key} is twice in its base")
            rows[key] = row
        number += 1
    return rows


def _log_rows(reader: StoreReader, log: int, position: LogOffset, definition: Definition) -> Iterator[Told]:
    at_end = False
    while not at_end:
        result = reader.read(log, position)
        yield from told_rows(result.rows, definition)
        position, at_end = result.next, result.at_end


def told_rows(batches: Iterable[pa.RecordBatch], definition: Definition) -> Iterator[Told]:
    """Rows of a log, or of a chunk of a base."""
    for batch in batches:
        for row in batch.to_pylist():
            yield _told(row, definition)


def _told(row: dict[str, Any], definition: Definition) -> Told:
    kind, bitmap = Kind(row["kind"]), row.get("absent") or b""
    at = LogOffset(row["tx"], row["op"])
    if kind is Kind.TRUNCATE:
        return Told(at, kind, ())
    sent = {
        name: value
        for index, (name, value) in enumerate(row["new"].items())
        if not (index // 8 < len(bitmap) and bitmap[index // 8] >> index % 8 & 1)
    }
    if kind is Kind.DELETE and not definition.view.full:
        sent = {name: sent[name] for name in definition.key}
    return Told(at, kind, tuple(sent.items()))


def apply(where: str, rows: Rows, told: Told, definition: Definition) -> None:
    """Do to rows what a row of a log says; raises `Violation` where it does not fit them."""
    if told.kind is Kind.TRUNCATE:
        rows.clear()
        return
    values = dict(told.values)
    key = tuple(values[name] for name in definition.key)
    if (key in rows) == (told.kind is Kind.INSERT):
        raise Violation(f"{where}: {told} does not fit what is there: {rows.get(key)}")
    if told.kind is Kind.DELETE:
        del rows[key]
    else:
        rows[key] = {**rows.get(key, {}), **values}


def same_rows(where: str, found: Rows, wanted: Rows) -> None:
    """Raise `Violation` where they are not the same."""
    if found != wanted:
        _same(where, _sorted(found), _sorted(wanted))


def _sorted(rows: Rows) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows.values())


def _same(where: str, found: list[str], wanted: list[str]) -> None:
    if found == wanted:
        return
    missing = [row for row in wanted if row not in found]
    surplus = [row for row in found if row not in wanted]
    twice = sorted({row for row in found if found.count(row) > wanted.count(row)})
    raise Violation(
        f"{where}: lost {missing[:5]}, too many {surplus[:5] or twice[:5]}, in all {len(found)} of {len(wanted)}"
    )

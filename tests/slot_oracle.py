"""What the server committed, as a slot beside ours tells it through SQL: an oracle that the program has no part in.

It is read only as far as the program says that all is durable, and compared with what the folder has.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cdc.source.lsn import format_lsn
from cdc.status.folder_report import FolderFacts
from storage.catalog_records import Life
from storage.disk import LocalDisk, folder_of
from storage.folder_reader import FolderReader
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.rows import OP, TX, column
from tests.postgres import Database

Ops = dict[int, set[int]]
"""For each transaction, by where its commit begins: the changes of one table, numbered as sent."""


class SlotOracle:
    """One slot for a publication, made when nothing is written."""

    def __init__(self, database: Database, publication: str = "shapelog") -> None:
        self._database = database
        self._publication = publication
        self._unchecked: dict[str, Ops] = {}
        """By table; committed above what the program said last."""
        self._checked_upto = 0
        self.found_count = 0
        """Transactions that were where they belong, on disk after a kill ..."""
        self.seen_count = 0
        """... and while the process ran, by its own word."""
        with database.connect() as connection:
            connection.execute("SELECT pg_create_logical_replication_slot('oracle', 'pgoutput')")

    def check(self, folder: Path) -> None:
        """Every listed shape has on disk all that its table's transactions below G left; nobody runs on the folder."""
        with folder_of(LocalDisk(folder)) as disk:
            facts = FolderFacts(disk)
            assert facts.g is not None
            committed = self._below(facts.g)
            reader = FolderReader(disk)
            for shape in facts.shapes:
                if shape.definition["where"] is None and shape.life is Life.READY:
                    ops = committed.get(shape.definition["table"], {})
                    wanted = {tx: ops[tx] for tx in ops if tx >= shape.snapshot.birth}  # older ones its base may have
                    self._check_rows(reader, shape.log, shape.name or shape.handle, wanted)
            self._checked_upto = max(self._checked_upto, facts.g)

    def _check_rows(self, reader: FolderReader, log: int, name: str, wanted: Ops) -> None:
        floor = max((base.floor for base in reader.bases(log) if base.is_complete), default=SNAPSHOT_END)
        above = max(floor, LogOffset(self._checked_upto - 1, OP_INFINITE) if self._checked_upto else SNAPSHOT_END)
        found = rows_above(reader, log, above)
        for tx, all_ops in wanted.items():
            ops = {op for op in all_ops if (tx, op) > floor}  # the base that a TRUNCATE left has what was before it
            assert found.get(tx, set()) == ops, (
                f"{name}: of the transaction at {format_lsn(tx)}, which is below G, it has "
                f"{len(found.get(tx, ()))} changes of {len(ops)}"
            )
            self.found_count += bool(ops)

    def check_marks(self, confirmed: int, marks: Iterable[Mapping[str, Any]]) -> None:
        """While it runs: what was confirmed is durable in every shape. `marks` were asked for after `confirmed`."""
        self._hear(confirmed)
        for shape in marks:
            if shape["where"] is not None:
                continue
            for tx, ops in self._unchecked.get(shape["table"], {}).items():
                if max(shape["birth"], self._checked_upto) <= tx < confirmed:
                    assert (tx, max(ops)) <= tuple(shape["durable"]), (
                        f"{shape['name'] or shape['handle']}: {format_lsn(confirmed)} is confirmed, and of the "
                        f"transaction at {format_lsn(tx)} not all is durable: D is {shape['durable']}"
                    )
                    self.seen_count += 1

    def _below(self, lsn: int) -> dict[str, Ops]:
        """Those that were not checked before."""
        self._hear(lsn)
        return {
            table: {tx: committed.pop(tx) for tx in sorted(committed) if tx < lsn}
            for table, committed in self._unchecked.items()
        }

    def _hear(self, lsn: int) -> None:
        """What was committed up to there."""
        query = "SELECT data FROM pg_logical_slot_get_binary_changes('oracle', %s, NULL, %s, %s, %s, %s)"
        options = ("proto_version", "1", "publication_names", self._publication)
        with self._database.connect() as connection:
            for tx, tables in transactions(row[0] for row in connection.execute(query, [format_lsn(lsn), *options])):
                if tx >= self._checked_upto:  # after a crash of the server, the slot tells some of it again
                    for table, ops in tables.items():
                        self._unchecked.setdefault(table, {})[tx] = ops


def transactions(messages: Iterable[bytes]) -> Iterator[tuple[int, dict[str, set[int]]]]:
    """What pgoutput says: where each commit begins, and the numbers of its changes by table."""
    names: dict[int, str] = {}
    tx, count, tables = 0, 0, defaultdict[str, set[int]](set)
    for message in messages:
        match chr(message[0]):
            case "B":
                (tx,) = struct.unpack_from(">Q", message, 1)
                count, tables = 0, defaultdict(set)
            case "R":
                (oid,) = struct.unpack_from(">I", message, 1)
                names[oid] = message[5:].split(b"\0")[1].decode()
            case "I" | "U" | "D":
                (oid,) = struct.unpack_from(">I", message, 1)
                tables[names[oid]].add(2 * count)
                count += 1
            case "T":
                (relations,) = struct.unpack_from(">I", message, 1)
                for oid in struct.unpack_from(f">{relations}I", message, 6):
                    tables[names[oid]].add(2 * count)
                    count += 1
            case "C":
                yield tx, dict(tables)


def rows_above(reader: FolderReader, log: int, at: LogOffset) -> Ops:
    """What a log has on disk above a place; both halves of a split change are one."""
    found: Ops = defaultdict(set)
    at_end = at > reader.upper(log)  # a quiet shape ends below G
    while not at_end:
        result = reader.read(log, at)
        for rows in result.rows:
            for tx, op in zip(column(rows, TX).tolist(), column(rows, OP).tolist(), strict=True):
                found[tx].add(op & ~1)
        at, at_end = result.next, result.at_end
    return found

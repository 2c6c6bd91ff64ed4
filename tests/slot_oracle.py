"""What the server committed, as a slot beside ours tells it through SQL: an oracle that the program has no part in.

It is read only as far as the program says that all is durable, and compared with what the folder has.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdc.source.lsn import format_lsn
from cdc.status.folder_report import FolderFacts
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
        """Transactions that were where they belong."""
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
                if shape.definition["where"] is None:
                    wanted = committed.get(shape.definition["table"], {})
                    found = rows_above(reader, shape.log, self._checked_upto)
                    for tx, ops in wanted.items():
                        assert found.get(tx) == ops, (
                            f"{shape.name}: of the transaction at {format_lsn(tx)}, which is below G, it has "
                            f"{len(found.get(tx, ()))} changes of {len(ops)}"
                        )
                    self.found_count += len(wanted)
            self._checked_upto = max(self._checked_upto, facts.g)

    def _below(self, lsn: int) -> dict[str, Ops]:
        """Those that were not checked before."""
        query = "SELECT data FROM pg_logical_slot_get_binary_changes('oracle', %s, NULL, %s, %s, %s, %s)"
        options = ("proto_version", "1", "publication_names", self._publication)
        with self._database.connect() as connection:
            for tx, tables in transactions(row[0] for row in connection.execute(query, [format_lsn(lsn), *options])):
                if tx >= self._checked_upto:  # after a crash of the server, the slot tells some of it again
                    for table, ops in tables.items():
                        self._unchecked.setdefault(table, {})[tx] = ops
        return {
            table: {tx: committed.pop(tx) for tx in sorted(committed) if tx < lsn}
            for table, committed in self._unchecked.items()
        }


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
            case "C":
                yield tx, dict(tables)


def rows_above(reader: FolderReader, log: int, lsn: int) -> Ops:
    """What a log has on disk of transactions at or above a place; both halves of a split change are one."""
    found: Ops = defaultdict(set)
    at = LogOffset(lsn - 1, OP_INFINITE) if lsn else SNAPSHOT_END
    at_end = at > reader.upper(log)  # a quiet shape ends below G
    while not at_end:
        result = reader.read(log, at)
        for rows in result.rows:
            for tx, op in zip(column(rows, TX).tolist(), column(rows, OP).tolist(), strict=True):
                found[tx].add(op & ~1)
        at, at_end = result.next, result.at_end
    return found

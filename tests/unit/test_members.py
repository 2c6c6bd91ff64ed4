"""Rows that a shape holds until it is born: they leave together, whatever the fragments were like that brought them."""

import numpy as np
import pyarrow as pa

from shapes.members import Held
from storage.catalog_records import Snapshot
from storage.offset import LogOffset
from storage.rows import Kind, row_schema


def rows_of(tx: int, kind: Kind, *, old: bool) -> pa.RecordBatch:
    row = {"tx": tx, "op": 0, "kind": kind, "xid": tx, "absent": None, "new": {"id": "1"}}
    return pa.RecordBatch.from_pylist(
        [row | ({"old": {"id": "1"}} if old else {})], row_schema(["id"], old=old, xid=True)
    )


def held(*batches: tuple[pa.RecordBatch, int, int]) -> Held:
    """Batches of one row, each with its transaction's commit and id."""
    found = Held(0.0)
    for rows, tx, xid in batches:
        found.add(rows, np.array([tx], np.uint64), np.array([xid], np.uint64), np.array([1], np.uint64))
    return found


def test_fragments_with_and_without_old_rows_leave_together() -> None:
    for first, second in ((False, True), (True, False)):
        both = held((rows_of(10, Kind.INSERT, old=first), 10, 5), (rows_of(20, Kind.UPDATE, old=second), 20, 6))
        released = both.released(Snapshot(3, 3, (), 0))
        assert released is not None
        rows, end = released
        assert end == LogOffset(20, 1)
        assert rows.column("xid").to_pylist() == [10, 20]
        assert [row["old"] for row in rows.to_pylist()] == [{"id": "1"} if one else None for one in (first, second)]


def test_what_the_snapshot_has_stays_behind() -> None:
    both = held((rows_of(10, Kind.INSERT, old=False), 10, 5), (rows_of(20, Kind.UPDATE, old=True), 20, 6))
    released = both.released(Snapshot(6, 6, (), 100))
    assert released is not None
    assert released[0].column("tx").to_pylist() == [20]
    assert both.released(Snapshot(7, 7, (), 100)) is None

"""What the tests of compaction and retention write and compare: rows with keys, and what a table is after them.

The model goes row by row with dicts. A `Table` makes up legal transactions (no UPDATE of a row that does not live),
writes them to a log, and remembers the rows and what the table was at every transaction's end.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from storage.disk import Disk
from storage.faulty_disk import FaultyDisk
from storage.flush_control import FlushOptions
from storage.memory_disk import MemoryDisk, luckiest
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import ABSENT, OLD, XID, Kind, row_schema
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.unit.builders import NEVER_SECONDS, Rig

KEYED: Final = ("id", "left", "right")
CHUNK_BYTES: Final = 600
"""About five rows, so that a few transactions have some chunks."""

TRUNCATING_KEY: Final = 3
"""Where another row would die, all of them do."""

Values = dict[str, str | None]
State = dict[str, Values]
"""The living rows by key, each with the values that are known."""


class Row(NamedTuple):
    """A row of a log; `new` has the columns that were sent."""

    at: LogOffset
    kind: Kind
    new: Values


class Draw(NamedTuple):
    """What becomes a change: of which row, which way, with which columns and values."""

    key: int
    dies: bool
    sent: int
    value: int


DRAWS = st.builds(
    Draw, st.integers(0, 3), st.integers(0, 9).map(lambda n: n == 0), st.integers(0, 3), st.integers(0, 9)
)
TRANSACTIONS = st.lists(DRAWS, min_size=1, max_size=4)


def tiny(*, segment_bytes: int = 1, own_segment_bytes: int = 1, **flush: Any) -> StoreOptions:
    """Every flush of rows goes to a segment, and (by default) every one to a new segment."""
    return StoreOptions(
        buffer=BufferOptions(flush_age_seconds=NEVER_SECONDS),
        flush=FlushOptions(own_segment_bytes=own_segment_bytes, segment_bytes_max=segment_bytes, **flush),
    )


def keyed_batch(rows: Sequence[Row], *, absent: bool = True, old: bool = False, xid: bool = True) -> pa.RecordBatch:
    """Rows as a log takes them, with or without the optional columns."""
    nulls: Values = dict.fromkeys(KEYED)
    records = [
        {"tx": row.at.tx, "op": row.at.op, "kind": row.kind, "new": nulls | row.new}
        | ({ABSENT: _bitmap(row)} if absent else {})
        | ({OLD: None} if old else {})
        | ({XID: row.at.tx} if xid else {})
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(records, schema=row_schema(KEYED, absent=absent, old=old, xid=xid))


def rows_in(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """The rows of batches, the other way round. Whoever has an xid has his own."""
    batches = list(batches)
    assert all(
        row[XID] in {row["tx"], None} for batch in batches if XID in batch.schema.names for row in batch.to_pylist()
    )
    return [
        Row(LogOffset(row["tx"], row["op"]), Kind(row["kind"]), _sent(row["new"], row.get(ABSENT) or b""))
        for batch in batches
        for row in batch.to_pylist()
    ]


def state_after(rows: Iterable[Row], before: Mapping[str, Values] | None = None) -> State:
    """What a table is after these rows."""
    state = {key: dict(values) for key, values in (before or {}).items()}
    for row in rows:
        key = row.new.get("id") or ""
        match row.kind:
            case Kind.TRUNCATE:
                state.clear()
            case Kind.DELETE:
                state.pop(key, None)
            case Kind.INSERT:
                state[key] = dict(row.new)
            case Kind.UPDATE:
                state[key] = state.get(key, {}) | row.new
    return state


class Table:
    """A table, and the log that it is written to."""

    def __init__(self, disk: Disk | None = None, options: StoreOptions | None = None, **facts: Any) -> None:
        self.rig = Rig(disk, options or tiny(), **{"key_columns": ("id",), "chunk_bytes": CHUNK_BYTES, **facts})
        self.rows: list[Row] = []
        self.states: dict[LogOffset, State] = {SNAPSHOT_END: {}}
        """By transaction's end."""
        self._tx = 0

    @property
    def state(self) -> State:
        return self.states[self.end]

    @property
    def end(self) -> LogOffset:
        """The last transaction's."""
        return max(self.states)

    def state_at(self, offset: LogOffset) -> State:
        """After all rows up to this one, be it in the middle of a transaction."""
        return state_after(row for row in self.rows if row.at <= offset)

    def make(self, draws: Sequence[Draw]) -> list[Row]:
        """A transaction, not written yet."""
        self._tx += 10
        rows: list[Row] = []
        state = self.state
        for number, draw in enumerate(draws):
            at = LogOffset(self._tx, 2 * number)
            rows.append(_legal(at, draw, state_after(rows, state)))
        return rows

    def write(self, draws: Sequence[Draw], *, flush: bool = False, **columns: bool) -> list[Row]:
        """A whole transaction."""
        rows = self.make(draws)
        self.append(rows, aligned=self.aligned(rows), **columns)
        if flush:
            self.flush()
        return rows

    def aligned(self, rows: Sequence[Row]) -> LogOffset:
        return LogOffset(rows[-1].at.tx, rows[-1].at.op + 1)

    def append(self, rows: Sequence[Row], *, aligned: LogOffset | None = None, **columns: bool) -> None:
        """Rows of a transaction, and its end if they are the last."""
        self.rig.store.append(1, keyed_batch(rows, **columns), after=self.rig.upper(), aligned=aligned)
        self.rows += rows
        if aligned is not None:
            self.states[aligned] = state_after(rows_of_tx(self.rows, aligned.tx), self.state)

    def write_in_parts(self, draws: Sequence[Draw], *, late: bool = False) -> None:
        """A whole transaction, each row of which was flushed before the next one came; its end, too, if it is late."""
        rows = self.make(draws)
        for row in rows:
            self.append([row], aligned=self.aligned(rows) if row is rows[-1] and not late else None)
            self.flush()
        if late:
            self.commit()

    def commit(self) -> None:
        """The end of a transaction whose rows were written."""
        end = self.aligned(self.rows)
        self.rig.store.commit(1, end)
        self.states[end] = state_after(rows_of_tx(self.rows, end.tx), self.state)

    def flush(self) -> None:
        self.rig.store.flush(demand=[1])

    def reopen(self) -> None:
        """By the next process."""
        self.rig = self.rig.reopened()

    def copy(self) -> "Table":
        """The same table on a copy of the disk, as it is without a crash."""
        disk = self.rig.disk
        inner = disk.disk if isinstance(disk, FaultyDisk) else disk
        assert isinstance(inner, MemoryDisk)
        copied = Table(inner.crash_image(luckiest), self.rig.options)
        copied.rows, copied.states, copied._tx = list(self.rows), dict(self.states), self._tx
        return copied

    def read_rows(self, after: LogOffset = SNAPSHOT_END, max_bytes: int | None = None) -> list[Row]:
        return [row for result in self.rig.read_on(after, max_bytes) for row in rows_in(result.rows)]

    def segments(self) -> list[str]:
        return [name for name in self.rig.disk.names("logs/1") if name.endswith(".segment")]


def rows_of_tx(rows: Iterable[Row], tx: int) -> list[Row]:
    return [row for row in rows if row.at.tx == tx]


def updates(key: int, count: int) -> list[list[Draw]]:
    """Transactions that all change one row, the first of which may insert it."""
    return [[Draw(key, dies=False, sent=number % 3 + 1, value=number)] for number in range(count)]


def _legal(at: LogOffset, draw: Draw, state: State) -> Row:
    key, value = f"key {draw.key}", str(draw.value) if draw.value else None
    if key not in state:
        return Row(at, Kind.INSERT, {"id": key, "left": value, "right": None})
    if draw.dies and draw.key == TRUNCATING_KEY:
        return Row(at, Kind.TRUNCATE, {})
    if draw.dies:
        return Row(at, Kind.DELETE, {"id": key})
    sent: Values = {name: value for bit, name in enumerate(KEYED[1:]) if draw.sent & 1 << bit}
    return Row(at, Kind.UPDATE, sent | {"id": key})


def _bitmap(row: Row) -> bytes | None:
    number = sum(1 << bit for bit, name in enumerate(KEYED) if name not in row.new)
    return bytes([number]) if number else None


def _sent(values: Values, bitmap: bytes) -> Values:
    number = int.from_bytes(bitmap, "little")
    return {name: values[name] for bit, name in enumerate(KEYED) if not number & 1 << bit}

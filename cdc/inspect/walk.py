"""The rows of a log as `shapelog read` prints them: from a base if that is asked for, then from the log.

Where to go on is always said: the position after the last row printed, which is good for the next `--after`.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa

from storage.bases import Base
from storage.disk import LocalDisk
from storage.errors import AboveUpper, Refetch
from storage.folder_reader import FolderReader
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.rows import ABSENT, KIND, NEW, OLD, OP, TX, XID, Kind, wire_sizes

LOOK_SECONDS: Final = 0.2
"""Between two looks when following: files tell nobody that they grew, and a person does not see less."""

READ_BYTES: Final = 1024 * 1024
"""Asked for at a time: so much is in memory."""

_QUOTED: Final = frozenset(' "=\\')


class LogRows:
    """A walk through a log. `position` is where it stands: all rows at or below were given out."""

    def __init__(self, disk: LocalDisk, reader: FolderReader, log: int, after: LogOffset) -> None:
        self.position = after
        self._disk = disk
        self._reader = reader
        self._log = log

    def batches(self, max_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
        """What there is above the position: to the end, or about so many wire bytes, at least one row.

        Raises `Refetch` if a newer base has taken the place of what follows: whoever wants all begins anew.
        """
        left = max_bytes
        if self.position < SNAPSHOT_END:
            for batch in self._base_chunks():
                yield batch
                if left is not None and (left := left - int(wire_sizes(batch).sum())) <= 0:
                    return
        is_at_end = False
        while not is_at_end:
            wanted = READ_BYTES if left is None else min(left, READ_BYTES)
            result = self._reader.read(self._log, self.position, wanted)
            for batch in result.rows:
                yield batch
            self.position = result.next
            is_at_end = result.at_end
            if left is not None:
                left -= sum(int(wire_sizes(batch).sum()) for batch in result.rows)
                if left <= 0:
                    return

    def followed(self, begins_anew: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """What there is, and what comes, without an end.

        Where what follows is in a newer base only, all begins anew with that base, and that is said first.
        """
        while True:
            self.forget_files()
            try:
                yield from self.batches()
            except AboveUpper:
                pass  # the writer is recovering: what was seen comes again
            except Refetch:
                self.position = BEFORE_ALL
                begins_anew()
            time.sleep(LOOK_SECONDS)

    def forget_files(self) -> None:
        """Recovery may remove a file and make another of its name; an open descriptor would show the old one."""
        self._disk.forget_descriptors()

    def _base_chunks(self) -> Iterator[pa.RecordBatch]:
        """The chunks of the newest complete base above the position; then the position is where the log goes on."""
        complete = [base for base in self._reader.bases(self._log) if base.is_complete]
        if complete:
            base: Base = complete[-1]
            start = 0 if self.position == BEFORE_ALL else self.position.op + 1
            for number in range(start, len(base.chunks)):
                rows = self._reader.read_chunk(self._log, base.number, number)
                self.position = LogOffset.of_snapshot_chunk(number)
                if rows is not None:
                    yield rows
        self.position = complete[-1].floor if complete else SNAPSHOT_END


def rows_as_json(batch: pa.RecordBatch) -> Iterator[str]:
    """A JSON object a row. What was not sent with a row is named in `absent`, and not among its values."""
    for offset, kind, xid, absent, new, old in _rows(batch):
        row: dict[str, Any] = {"offset": offset, "kind": kind}
        if xid is not None:
            row["xid"] = xid
        if new is not None:
            row["new"] = {name: value for name, value in new.items() if name not in absent}
        if old is not None:
            row["old"] = old
        if absent:
            row["absent"] = absent
        yield orjson.dumps(row).decode()


def rows_as_text(batch: pa.RecordBatch) -> Iterator[str]:
    """A line a row. Whatever the values are, they stay on it: they are quoted where they are not plain."""
    for offset, kind, xid, absent, new, old in _rows(batch):
        words = [offset, kind, *([] if xid is None else [f"xid:{xid}"])]
        words += [f"{name}={shown(value)}" for name, value in (new or {}).items() if name not in absent]
        words += [f"old.{name}={shown(value)}" for name, value in (old or {}).items()]
        yield " ".join(words)


_Values: TypeAlias = dict[str, Any] | None


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, str, int | None, Sequence[str], _Values, _Values]]:
    """Row by row: this is for people and pipes, and they are slower than it is."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    names = [field.name for field in batch.schema.field(NEW).type]
    nothing = [None] * batch.num_rows
    rows = zip(
        columns[TX],
        columns[OP],
        columns[KIND],
        columns.get(XID, nothing),
        columns.get(ABSENT, nothing),
        columns[NEW],
        columns.get(OLD, nothing),
        strict=True,
    )
    for tx, op, kind, xid, absent, new, old in rows:
        yield str(LogOffset(tx, op)), Kind(kind).name.lower(), xid, _names(absent, names), new, old


def _names(bitmap: bytes | None, names: Sequence[str]) -> list[str]:
    """The columns that a bitmap says were not sent."""
    bits = int.from_bytes(bitmap or b"", "little")
    return [name for index, name in enumerate(names) if bits >> index & 1]


def shown(value: str | None) -> str:
    """A value on one line, in quotes where it is not plain."""
    if value is None:
        return "null"
    is_plain = value.isprintable() and _QUOTED.isdisjoint(value) and value not in ("", "null")
    return value if is_plain else json.dumps(value)  # the one of the two that also escapes what terminals obey

"""Reading a handle: its base, chunk by chunk, then the log from the base's floor. Stateless, like all reading.

    -1, 0_0 .. 0_k   the next chunk of the base
    0_inf or above   rows of the log

A base that is still being written is read as far as it is; only a complete one leads on into the log.
"""

from typing import Protocol

import pyarrow as pa

from storage.bases import Base
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadResult, ReadSource


class LogReader(Protocol):
    """What reading a handle needs of a reader, in the writer's process or in another."""

    def bases(self, log: int) -> list[Base]:
        """The bases of a log."""

    def read_chunk(self, log: int, base: int, number: int) -> pa.RecordBatch | None:
        """A chunk of one."""

    def read(self, log: int, after: LogOffset, max_bytes: int | None = None) -> ReadResult:
        """Rows of the log."""


def read_handle(reader: LogReader, log: int, base: int, after: LogOffset, max_bytes: int | None = None) -> ReadResult:
    """The rows above `after` of a log as of one of its bases: at most one chunk of it, or rows of the log."""
    if after >= SNAPSHOT_END:
        return reader.read(log, after, max_bytes)
    number = 0 if after.tx < 0 else after.op + 1
    rows = reader.read_chunk(log, base, number)
    found = next((one for one in reader.bases(log) if one.number == base), None)
    is_complete = found is not None and found.is_complete
    if rows is None and found is not None and is_complete and number >= len(found.chunks):
        return reader.read(log, found.floor, max_bytes)
    floor = SNAPSHOT_END if found is None else found.floor
    return ReadResult(
        rows=[] if rows is None else [rows],
        next=after if rows is None else LogOffset.of_snapshot_chunk(number),
        visible=floor,
        durable=floor,
        at_end=rows is None and not is_complete,
        chunk_ended=rows is not None,
        sources={} if rows is None else {ReadSource.BASE: rows.num_rows},
    )

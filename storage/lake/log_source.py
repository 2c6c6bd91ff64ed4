"""A shape's log as a source of typed rows for somebody's own jobs: its base, then its changes, up to G.

A range of offsets is all that a part of a job needs, and the same range has the same rows at any time and in any
process, or is refused: rows above G are never shown, since a crash could still take them, and where updates of a row
became one, or the folder is an older copy, an error says so. With gaps allowed, a range may have fewer rows later on,
and each row's newest values all the same.

    -1                before all; 0_k: after chunk k of the base; any other: after that row of the log
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from storage.bases import Base
from storage.catalog import CatalogReader
from storage.catalog_records import Life, Shape
from storage.disk import LocalDisk
from storage.errors import Refetch, UnknownLog
from storage.handle_reading import read_handle
from storage.lake.changes import Typed
from storage.lake.errors import ChangesFolded, LakeDamage, LogGap, StepBack
from storage.lake.loads import base_of
from storage.lake.log_gaps import LogGaps
from storage.lake.pieces import Range, pieces
from storage.lake.refusals import unknown_shape
from storage.lake.table_schema import TableSchema
from storage.lake.tasks import reader_of
from storage.ledger import first_folded
from storage.limits import READ_BYTES_MAX
from storage.offset import BEFORE_ALL, OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.progress import ProgressReader, ProgressRecord
from storage.rows import OP, TX, column, offset_at, rows_up_to

CHUNKS_EACH: Final = 16
"""Chunks of a base that one task reads."""


class LogSource:
    """One shape of a data folder, by its name or handle."""

    def __init__(self, data: str, shape: str, *, allows_gaps: bool = False) -> None:
        self._allows_gaps = allows_gaps
        self.data = str(Path(data).resolve())
        self._disk = LocalDisk(self.data)
        self._reader = reader_of(self.data)
        self.shape = self._find(shape)
        self.schema = TableSchema.of_definition(self.shape.definition)
        self._base: Base | None = None

    @property
    def base(self) -> Base:
        """What a reader of the shape begins with."""
        if self._base is None:
            try:
                self._base = base_of(self._reader, self.shape)
            except LakeDamage as error:
                raise LogGap(f"the base of {self.shape.handle!r} was replaced; begin a new query") from error
        return self._base

    def end(self) -> LogOffset:
        """Everything at or below is on disk for good; before the shape's first G nothing is."""
        latest, catalog = self._latest(), CatalogReader(self._disk)
        catalog.refresh()
        listed = frozenset() if latest is None else catalog.state.listed_at(latest.catalog_version)
        current = catalog.state.shapes.get(self.shape.handle, self.shape)
        if current.life is Life.ENDED:
            return max(self._reader.upper(self.shape.log), BEFORE_ALL)
        newest = catalog.state.newest_of(self.shape.log) or current
        if latest is None or newest.handle not in listed or latest.lsn < self.shape.snapshot.birth:
            return BEFORE_ALL
        return LogOffset(latest.lsn - 1, OP_INFINITE)

    def refuse_step_back(self, start: LogOffset) -> None:
        """Raise `StepBack` if rows up to `start` were given out, and the folder was never as far."""
        latest = self._latest()
        if self.shape.life is not Life.ENDED and start.tx > 0 and (latest is None or latest.lsn <= start.tx):
            message = f"shape {self.shape.handle!r} goes backwards: the data folder is an older copy"
            raise StepBack(message, given_out=start, folder_has=0 if latest is None else latest.lsn)

    def advance(self, start: LogOffset, rows_max: int | None = None) -> LogOffset:
        """The end of the next range above `start`: all there is, or about so many rows. `start` if there are none."""
        end = self.end()
        if next(self._batches(start, end, max_bytes=0), None) is None:
            return start
        if rows_max is None:
            return end
        count = 0
        for batch in self._batches(start, end, READ_BYTES_MAX):
            count += batch.num_rows
            if count >= rows_max:
                is_base = offset_at(batch, 0).is_snapshot  # all rows of a chunk share one offset
                return offset_at(batch, batch.num_rows - 1 if is_base else batch.num_rows - 1 - (count - rows_max))
        return end

    def ranges(self, start: LogOffset, end: LogOffset) -> list[Range]:
        """The range in parts that tasks can read, in order."""
        if end <= start:
            return []
        self._refuse_folded(start, end)
        found, position = list[Range](), start
        if start < SNAPSHOT_END:
            count, first = len(self.base.chunks), 0 if start.tx < 0 else start.op + 1
            for number in range(first, count, CHUNKS_EACH):
                stop = min(end, LogOffset(0, min(number + CHUNKS_EACH, count) - 1))
                if stop > position:
                    found.append((position, stop))
                    position = stop
        return [*found, *pieces(self._reader, self.shape.log, position, end)] if end > position else found

    def read(self, start: LogOffset, end: LogOffset, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a range, with these columns; no other is cast."""
        narrow = self.schema.only(columns)
        for batch in self._batches(start, end, READ_BYTES_MAX):
            table = Typed([batch], narrow).as_changes().select(columns)
            yield from table.combine_chunks().to_batches()
        self._refuse_folded(start, end)  # behind the rows: somebody may have folded while they were read

    def _batches(self, start: LogOffset, end: LogOffset, max_bytes: int) -> Iterator[pa.RecordBatch]:
        position, log = start, self.shape.log
        while position < end:
            try:
                if position >= max(self._reader.upper(log), SNAPSHOT_END):
                    return
                base = self.base.number if position < SNAPSHOT_END else 0
                result = read_handle(self._reader, log, base, position, max_bytes)
            except (Refetch, UnknownLog) as error:
                message = f"shape {self.shape.handle!r} no longer has the rows that come next; begin a new query"
                raise LogGap(message, after=position, upto=end) from error
            for batch in result.rows:
                kept = batch.slice(0, rows_up_to(column(batch, TX), column(batch, OP), end))
                if kept.num_rows:
                    yield kept
            if result.at_end or not result.rows:
                return
            position = result.next

    def _refuse_folded(self, after: LogOffset, upto: LogOffset) -> None:
        if self._allows_gaps:
            return
        if (found := first_folded(LogGaps(self._reader).ledger(self.shape.log), after, upto)) is not None:
            message = f"changes of shape {self.shape.handle!r} were folded into later ones"
            raise ChangesFolded(message, after=after, upto=upto, folded=f"{found[0]} to {found[1]}")

    def _latest(self) -> ProgressRecord | None:
        """What G is now."""
        progress = ProgressReader(self._disk)
        progress.refresh()
        return progress.history.latest

    def _find(self, name: str) -> Shape:
        catalog = CatalogReader(self._disk)
        catalog.refresh()
        state = catalog.state
        shape = state.named(name) or state.shapes.get(name)
        if shape is None or shape.base is None:
            known = [one.name or one.handle for one in state.living()]
            raise unknown_shape(f"the folder has no shape {name!r} that is ready", name, known)
        return shape

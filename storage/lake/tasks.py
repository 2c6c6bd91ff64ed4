"""What Spark's processes do: one piece of work each, from what it says and the two folders alone.

A task writes files under names of its own and returns what it wrote. Only returned names count, so a task may be run
twice, or die: it leaves a file that nobody names.

    JoinChanges   files of changes -> one, with the columns of today
    ReadPiece     a range of a log -> a file of changes; its folded rows -> files of the state, or staged for others
    MergeRange    staged folded rows, and the state's files of one key range -> files of the state
    LoadChunks    chunks of a base -> sorted runs, which are files of the state if no two overlap
    SortRange     runs that overlap, one key range of them -> files of the state
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.blocks_cache import BlocksCache
from storage.disk import LocalDisk
from storage.errors import Refetch, UnknownLog
from storage.folder_reader import FolderReader
from storage.lake.changes import Typed, refetch_row
from storage.lake.errors import LakeDamage, LogGap
from storage.lake.keys import Key, keys_of_state
from storage.lake.lake_layout import changes_joined, changes_name
from storage.lake.limits import INLINE_REWRITES_MAX, STATE_FILE_ROWS, TASK_CACHE_BYTES
from storage.lake.lives import Lives, fold_lives
from storage.lake.parquet_files import FileWriter, NewFile, read_rows, sync_file
from storage.lake.staging import stage, staged
from storage.lake.state import Rewrite, StateFile, fitted, merge, rewrites
from storage.lake.state_files import rewrite_files, write_state
from storage.lake.table_schema import TableSchema
from storage.limits import READ_BYTES_MAX
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.rows import OP, TX, column, row_schema, rows_up_to

SAMPLE_ROWS: Final = STATE_FILE_ROWS // 8
"""Every so many rows a run tells a key, so that ranges of equal size can be found."""


@dataclass(frozen=True, slots=True)
class TableWork:
    """The table that a task works for."""

    data: str
    """The data folder."""
    folder: str
    """The generation's folder; it has `state` and `changes`."""
    staging: str
    name: str
    log: int
    cut: int
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """Read a range of a log."""

    table: TableWork
    after: LogOffset
    upto: LogOffset
    files: tuple[StateFile, ...]
    """The state's files."""
    is_whole: bool
    """This is all of the table's cut, so the files may be written anew at once; else the folded rows are staged."""
    refetched: int | None
    """The log takes another's place, whose changes are known up to this LSN."""
    columns: pa.Schema | None
    """Of the table of changes: those of today, and those that went. None without a history."""


@dataclass(frozen=True, slots=True)
class JoinChanges:
    """Write neighbouring files of changes as one; or one anew, since a column's type was altered."""

    table: TableWork
    names: tuple[str, ...]
    previous: str | None
    """The file before them."""
    columns: pa.Schema


@dataclass(frozen=True, slots=True)
class MergeRange:
    """Merge staged rows into one range of keys; without any, the files are only joined."""

    table: TableWork
    rewrite: Rewrite
    staged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadChunks:
    """Read some chunks of a base."""

    table: TableWork
    base: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class SortRange:
    """Sort one range of keys out of runs that overlap."""

    table: TableWork
    runs: tuple[str, ...]
    low: Key | None
    high: Key | None


Work = JoinChanges | ReadPiece | MergeRange | LoadChunks | SortRange


@dataclass(slots=True)
class Done:
    """What a task wrote, and what it takes the place of."""

    changes: list[NewFile] = field(default_factory=list)
    changes_gone: list[str] = field(default_factory=list)
    state: list[NewFile] = field(default_factory=list)
    state_gone: list[str] = field(default_factory=list)
    staged: str | None = None
    keys: list[Key] = field(default_factory=list)
    """Of staged rows: a key in each file of the state that they change."""
    samples: list[Key] = field(default_factory=list)
    """Of staged rows, and of a run: a key for each `SAMPLE_ROWS`."""
    is_emptied: bool = False
    rows: int = 0
    quarantined: int = 0


def run(work: Work) -> Done:
    """Do a piece of work. What the allocator keeps of it is given back: the process stays, and the next needs other."""
    try:
        return _done(work)
    finally:
        pa.default_memory_pool().release_unused()


def _done(work: Work) -> Done:
    match work:
        case JoinChanges():
            return _join_changes(work)
        case ReadPiece():
            return _read_piece(work)
        case MergeRange():
            return _merge_range(work)
        case LoadChunks():
            return _load_chunks(work)
        case SortRange():
            return _sort_range(work)


@lru_cache(maxsize=4)
def reader_of(data: str) -> FolderReader:
    """One reader of a folder for each process: it remembers which blocks are where."""
    disk = LocalDisk(data)
    return FolderReader(disk, BlocksCache(disk, TASK_CACHE_BYTES))


def rows_of(
    reader: FolderReader, name: str, log: int, after: LogOffset, upto: LogOffset, max_bytes: int = READ_BYTES_MAX
) -> Iterator[list[pa.RecordBatch]]:
    """A log's rows above `after` and up to `upto`, some at a time; raises `LogGap` where they are gone."""
    position = after
    while position < upto:
        try:
            if position >= reader.upper(log):
                return  # the log ends long before: it is quiet
            result = reader.read(log, position, max_bytes)
        except (Refetch, UnknownLog) as error:
            raise LogGap(f"table {name!r} needs rows that its log no longer has", after=position, upto=upto) from error
        batches = [part for batch in result.rows if (part := _up_to(batch, upto)).num_rows]
        if batches:
            yield batches
        if result.at_end or not result.rows:
            return
        position = result.next


def _up_to(batch: pa.RecordBatch, upto: LogOffset) -> pa.RecordBatch:
    return batch.slice(0, rows_up_to(column(batch, TX), column(batch, OP), upto))


def _read_piece(work: ReadPiece) -> Done:
    table, schema = work.table, work.table.schema
    done, writer = Done(), None
    lives: Lives | None = None
    for batches in rows_of(reader_of(table.data), table.name, table.log, work.after, work.upto):
        done.rows += sum(batch.num_rows for batch in batches)
        if work.columns is not None:
            typed = Typed(batches, schema)
            writer = writer or _begin_changes(work, work.columns)
            writer.write(fitted(typed.as_changes(), work.columns))
            done.quarantined += typed.quarantined_count
        if schema.has_state:
            lives = fold_lives([*([] if lives is None else lives.stored()), *batches], schema)
    if writer is None and work.refetched is not None and work.columns is not None:
        writer = _begin_changes(work, work.columns)
    if writer is not None:
        done.changes = [writer.finish()]
        sync_file(Path(table.folder, "changes"))
    if lives is None:
        return done
    if work.columns is None:
        done.quarantined = Typed(lives.rows, schema).quarantined_count
    parts = planned(work.files, lives.keys, is_emptied=lives.is_emptied)
    if work.is_whole and len(parts) <= INLINE_REWRITES_MAX:
        for part in parts:
            _merge(table, part, lives.between(part.low, part.high), done)
    else:
        done.staged, done.is_emptied = stage(Path(table.staging), lives), lives.is_emptied
        done.keys = [lives.between(part.low, part.high).keys[0].as_py() for part in parts if len(lives.keys)]
        done.samples = _samples(lives.keys)
    return done


def _join_changes(work: JoinChanges) -> Done:
    folder = Path(work.table.folder, "changes")
    writer = FileWriter(folder, changes_joined(work.names, work.previous, _unique()), work.columns)
    for name in work.names:
        with pq.ParquetFile(folder / name) as file:
            for number in range(file.num_row_groups):
                writer.write(fitted(file.read_row_group(number), work.columns))
    done = Done(changes=[writer.finish()], changes_gone=[*work.names])
    sync_file(folder)
    return done


def _begin_changes(work: ReadPiece, columns: pa.Schema) -> FileWriter:
    # A base has a floor of its own; the name says what the rows follow, so that names sort as rows do.
    before = SNAPSHOT_END if work.refetched is None else LogOffset(work.refetched, OP_INFINITE)
    name = changes_name(max(work.after, before), work.upto, _unique())
    writer = FileWriter(Path(work.table.folder, "changes"), name, columns)
    if work.refetched is not None:
        writer.write(fitted(refetch_row(work.table.schema, work.refetched, 0), columns))
    return writer


def planned(files: Sequence[StateFile], keys: pa.Array, *, is_emptied: bool) -> list[Rewrite]:
    """Which files folded rows change: all of them after a TRUNCATE."""
    if is_emptied:
        return [Rewrite(tuple(file.path for file in files), None, None)]
    return rewrites(files, keys)


def _merge(table: TableWork, part: Rewrite, lives: Lives, done: Done) -> None:
    """Write one range anew."""
    done.state += rewrite_files(Path(table.folder, "state"), table.cut, part, lives, table.schema)
    done.state_gone += part.paths


def _merge_range(work: MergeRange) -> Done:
    done, schema = Done(), work.table.schema
    waiting: list[pa.RecordBatch] = []
    for path in work.staged:
        waiting += staged(path, work.rewrite, schema).stored()
        if sum(batch.num_rows for batch in waiting) > 4 * STATE_FILE_ROWS:
            waiting = fold_lives(waiting, schema).stored()
    if not waiting:
        waiting = [pa.RecordBatch.from_pylist([], row_schema([column.source for column in schema.columns]))]
    lives = fold_lives(waiting, schema)
    waiting.clear()  # they are as large as what was folded
    _merge(work.table, work.rewrite, lives, done)
    return done


def _load_chunks(work: LoadChunks) -> Done:
    table, schema = work.table, work.table.schema
    reader, batches = reader_of(table.data), []
    for number in range(work.first, work.stop):
        batch = reader.read_chunk(table.log, work.base, number)
        if batch is None:
            raise LakeDamage("a chunk of a base is gone", table=table.name, base=work.base, chunk=number)
        batches.append(batch)
    done = Done(rows=sum(batch.num_rows for batch in batches))
    if not done.rows:
        return done
    lives = fold_lives(batches, schema)
    rows, done.quarantined = merge(None, lives, schema)
    done.state = write_state(Path(table.folder, "state"), table.cut, rows, schema)
    done.samples = _samples(lives.keys)
    return done


def _sort_range(work: SortRange) -> Done:
    table, schema = work.table, work.table.schema
    parts, folder = [], Path(table.folder, "state")
    for name in work.runs:
        rows = read_rows(folder / name)
        keys = keys_of_state(schema, rows)
        wanted = pa.array([True] * len(keys)) if work.low is None else pc.greater_equal(keys, work.low)
        if work.high is not None:
            wanted = pc.and_(wanted, pc.less(keys, work.high))
        parts.append(rows.filter(wanted))
    rows = fitted(pa.concat_tables(parts), schema.state)
    order = pc.sort_indices(keys_of_state(schema, rows))
    return Done(
        state=write_state(folder, table.cut, rows.take(order), schema), state_gone=list(work.runs), rows=len(rows)
    )


def _samples(keys: pa.Array) -> list[Key]:
    found: list[Key] = keys.take(pa.array(range(0, len(keys), SAMPLE_ROWS))).to_pylist()
    return found


def _unique() -> str:
    return uuid.uuid4().hex

"""Reads every block of a data folder and checks all that can be checked: checksums, rows against headers, the chain.

Works beside a writer: what looks damaged is looked at again, since files move while they are read. What a crash leaves
lawfully, a torn tail, is no damage: the writer's next start cuts it. What nothing on disk tells of cannot be seen: the
newest segment of a log, if somebody removed it whole.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from storage import layout
from storage.bases import list_bases
from storage.block import BlockHeader, BlockKind
from storage.catalog import CatalogReader
from storage.disk import Disk, size_if_there
from storage.doubts import Doubts, read_doubts
from storage.errors import CorruptBlock, Hole, StorageError, UnknownLog
from storage.folder_reader import FolderReader
from storage.journal import JournalFile, JournalIndex
from storage.journal_block import PackedDirectory, part_of_share
from storage.journal_scan import load_blocks
from storage.log_facts import read_log
from storage.offset import SNAPSHOT_END, LogOffset
from storage.parts import decode_batches
from storage.progress import ProgressReader
from storage.recovery import is_in
from storage.rows import OP, TX, are_ordered, column, offset_at
from storage.scan import BlockRef, Scan, read_batches, read_part, scan
from storage.segments import list_segments
from storage.verify_report import Look, Noting, Report, damage_of

LOOKS_MAX: Final = 3
"""Looks at what seems damaged: a file that moved or was cut meanwhile is whole at the second one."""


def size_of(disk: Disk) -> int:
    """About how many bytes there are to read."""
    folders = [layout.JOURNAL, *(f"{layout.LOGS}/{log}" for log in disk.names(layout.LOGS))]
    return sum(size_if_there(disk, f"{folder}/{name}") for folder in folders for name in disk.names(folder))


def verify(disk: Disk, on_bytes: Callable[[int], None]) -> Report:
    """Look at everything; `on_bytes` hears of each block's size."""
    return _Verifier(disk, on_bytes).run()


class _Run(NamedTuple):
    """Rows of a log that lie together."""

    previous: LogOffset
    last: LogOffset
    rows_in_journal: int


class _Verifier:
    """The state of one walk through a folder."""

    def __init__(self, disk: Disk, on_bytes: Callable[[int], None]) -> None:
        self._disk = disk
        self._on_bytes = on_bytes
        self._index = JournalIndex()
        self._doubts: Doubts = {}
        self._report = Report()

    def run(self) -> Report:
        self._record_logs()
        self._settle(self._journal)
        for log in FolderReader(self._disk).logs():
            self._settle(lambda: self._log(log))  # noqa: B023 - called before the loop goes on
            self._report.logs += 1
        return self._report

    def _settle(self, look: Callable[[], Look]) -> None:
        """Look until nothing seems wrong, or it seems wrong for the last time."""
        for _ in range(LOOKS_MAX):
            try:
                found = look()
            except UnknownLog:
                return
            if not found.errors:
                break
            self._journal()  # shares move from there to segments: the next look needs to see where they are now
        self._report.take(self._disk, found)

    def _record_logs(self) -> None:
        progress, catalog = ProgressReader(self._disk), CatalogReader(self._disk)
        for reader in (progress, catalog):
            try:
                reader.refresh()
            except StorageError as error:
                self._report.damage.append(damage_of(self._disk, None, error))
        if progress.history.latest is not None:
            self._report.confirmed = progress.history.latest.lsn

    # The journal

    def _journal(self) -> Look:
        """Read all journal files anew."""
        look, self._index = Look(), JournalIndex()
        names = self._disk.names(layout.JOURNAL)
        with Noting(look, None, layout.JOURNAL):
            self._doubts = read_doubts(self._disk, names)

        def note_torn(path: str, end: int, why: str) -> None:
            self._note_torn(look, path, end, why)

        for number in sorted(filter(None, map(layout.journal_number, names))):
            file = JournalFile(number, layout.journal_path(number))
            self._index.add_file(file)
            with Noting(look, None, file.path):
                load_blocks(self._disk, self._index, file, confirmed_tx=self._report.confirmed, on_torn=note_torn)
            look.errors += [(None, place.fault) for place in file.unreadable]
            for ref, directory in zip(file.refs, file.directories, strict=True):
                with Noting(look, None, file.path):
                    for part in range(1, ref.header.parts):
                        self._journal_part(look, ref, directory, part)
                    self._count(look, ref, 0)
        return look

    def _journal_part(self, look: Look, ref: BlockRef, directory: PackedDirectory, number: int) -> None:
        """The rows of some logs: if they are damaged, it is known whose they are."""
        entries = [entry for entry in map(directory.entry, range(len(directory))) if entry.rows]
        entries = [entry for entry in entries if part_of_share(entry) == number]
        try:
            (batch,) = decode_batches(read_part(self._disk, ref, number))
            for entry in entries:
                _check_rows(ref, [batch.slice(entry.row, entry.rows)], entry.rows, entry.first, entry.last)
        except StorageError as error:
            look.errors += [(log, error.anew()) for log in sorted({entry.log for entry in entries})]

    # Logs

    def _log(self, log: int) -> Look:
        """Read a log's bases and segments, and hold the chain of all its rows together."""
        look = Look()
        with Noting(look, log, layout.log_folder(log)):
            read_log(self._disk, log)
            if log in self._doubts:
                look.errors.append((log, self._doubts[log]))
            self._bases(look, log)
            headers = list(self._segments(look, log))
            if not look.errors:
                self._chain(look, log, headers)
        return look

    def _bases(self, look: Look, log: int) -> None:
        for base in list_bases(self._disk, log):
            for number, ref in enumerate(base.chunks):
                with Noting(look, log, ref.path):
                    self._check_block(ref, log, LogOffset.of_snapshot_chunk(number))
                self._count(look, ref, ref.header.rows)
            if base.damage is not None:
                look.errors.append((log, base.damage))

    def _segments(self, look: Look, log: int) -> Iterator[BlockHeader]:
        """Check the blocks of a log's segments; the headers of those with rows."""
        confirmed = self._report.confirmed
        is_in_journal = is_in(self._index.shares_of(log), confirmed)
        living, _ = list_segments(self._disk, log)
        for number, segment in enumerate(living, start=1):
            found = scan(self._disk, segment.path, confirmed_tx=confirmed, is_elsewhere=is_in_journal)
            for ref in found.refs:
                with Noting(look, log, ref.path):
                    self._check_block(ref, log)
                is_rows = ref.header.kind is BlockKind.ROWS
                self._count(look, ref, ref.header.rows if is_rows else 0)
                if is_rows and ref.header.rows:
                    yield ref.header
            if found.torn is not None and (number < len(living) or segment.name.generation):
                raise CorruptBlock(f"a closed segment ends in {found.torn}", path=segment.path, position=found.end)
            self._note_end(look, log, segment.path, found)

    def _chain(self, look: Look, log: int, headers: list[BlockHeader]) -> None:
        """Each run of rows continues from the one before it; the first from nothing, or from a base."""
        base = next((base for base in reversed(list_bases(self._disk, log)) if base.is_complete), None)
        shares = [share.entry for share in self._index.shares_of(log)]
        runs = [_Run(header.previous, header.last, 0) for header in headers]
        runs += [_Run(entry.previous, entry.last, entry.rows) for entry in shares if entry.rows]
        position = SNAPSHOT_END
        if runs and base is not None:
            position = max(position, min(runs[0].previous, base.last))  # what lies below was retired
        for run in runs:
            if run.last > position:  # else a segment has it too
                if run.previous > position:
                    raise Hole(f"rows between {position} and {run.previous} are missing", log=log)
                position = run.last
                look.rows += run.rows_in_journal

    # Blocks

    def _note_end(self, look: Look, log: int | None, path: str, found: Scan) -> None:
        if found.damage is not None:
            look.errors.append((log, found.damage))
        if found.torn is not None:
            self._note_torn(look, path, found.end, found.torn)

    def _note_torn(self, look: Look, path: str, end: int, why: str) -> None:
        look.unfinished.append(f"{path}: {self._disk.size(path) - end} bytes at the end ({why})")

    def _check_block(self, ref: BlockRef, log: int, chunk: LogOffset | None = None) -> None:
        header = ref.header
        batches = read_batches(self._disk, ref)
        if header.log != log:
            raise _corrupt(ref, f"a block of log {header.log} is in log {log}")
        if header.kind is BlockKind.ROWS:
            _check_rows(ref, batches, header.rows, header.first, header.last)
        elif sum(batch.num_rows for batch in batches) != header.rows or chunk not in (None, header.last):
            raise _corrupt(ref, "a block holds other rows than its header says")

    def _count(self, look: Look, ref: BlockRef, rows: int) -> None:
        look.blocks += 1
        look.rows += rows
        look.bytes += ref.header.size
        self._on_bytes(ref.header.size)


def _check_rows(ref: BlockRef, batches: list[pa.RecordBatch], claimed: int, first: LogOffset, last: LogOffset) -> None:
    """Raise `CorruptBlock` unless rows are what the header or the directory says, in order."""
    count = sum(batch.num_rows for batch in batches)
    if count != claimed:
        raise _corrupt(ref, f"a block holds {count} rows, not {claimed}")
    if count and (offset_at(batches[0], 0), offset_at(batches[-1], batches[-1].num_rows - 1)) != (first, last):
        raise _corrupt(ref, f"a block holds other rows than {first} to {last}")
    if not all(are_ordered(column(batch, TX), column(batch, OP)) for batch in batches):
        raise _corrupt(ref, "a block's rows are not in order")


def _corrupt(ref: BlockRef, message: str) -> CorruptBlock:
    return CorruptBlock(message, path=ref.path, position=ref.position)
